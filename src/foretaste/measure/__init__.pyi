from .evaluate_runs import Comparison as Comparison
from .evaluate_runs import compare_runs as compare_runs
from .evaluate_runs import evaluate_run as evaluate_run
from .evaluate_runs import measure_run as measure_run
from .request import MeasureRequest as MeasureRequest
