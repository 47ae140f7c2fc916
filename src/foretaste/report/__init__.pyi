from .contents import RunsReport as RunsReport
from .contents import report_runs as report_runs
