from .exporting import Exported as Exported
from .exporting import export_run as export_run
