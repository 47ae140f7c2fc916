from .config import ServeConfig as ServeConfig
from .server import serve as serve
