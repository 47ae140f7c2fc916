from .competition import compete as compete
from .leaderboard import Entry as Entry
from .leaderboard import Leaderboard as Leaderboard
from .search import tune_model as tune_model
from .trials import Search as Search
from .trials import Trial as Trial
