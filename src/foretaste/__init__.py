"""foretaste: from who-touched-what to recommendations.

::

    import foretaste

    dataset = foretaste.prepare("ratings.csv", "datasets/ratings")
    run = foretaste.train("neumf", dataset)
    recommender = foretaste.load(run.path)
    recommender.recommend([42], k=10)

Nothing heavy is imported until it is used.
"""

from lazy_loader import attach_stub

from foretaste.host import share_cores

share_cores()  # while PyTorch is not imported yet

__getattr__, __dir__, __all__ = attach_stub(__name__, __file__)
