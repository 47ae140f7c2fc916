from .base import ClosedFormModel as ClosedFormModel
from .base import NeuralModel as NeuralModel
from .base import RecommenderModel as RecommenderModel
from .base import UserState as UserState
from .registry import MODEL_NAMES as MODEL_NAMES
from .registry import build_model as build_model
from .registry import config_class as config_class
