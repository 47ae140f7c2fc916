from .contents import RunsReport as RunsReport
from .contents import report_runs as report_runs
from .evaluate_runs import Comparison as Comparison
from .evaluate_runs import compare_runs as compare_runs
from .evaluate_runs import evaluate_run as evaluate_run
