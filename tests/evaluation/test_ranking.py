import numpy as np
import pytest
import torch

from foretaste.evaluation.ranking import ABSENT, target_ranks, top_k


@pytest.mark.parametrize("num_levels", [1, 3, 10_000])
@pytest.mark.parametrize("k", [1, 7, 40, 99])
def test_lists_are_ordered_by_score_then_column(num_levels: int, k: int) -> None:
    generator = np.random.default_rng(num_levels)
    scores = generator.integers(0, num_levels, size=(30, 40)).astype(np.float32)
    top = top_k(torch.tensor(scores), k)
    columns = np.broadcast_to(np.arange(40), scores.shape)
    expected = np.lexsort((columns, -scores))[:, :k]
    assert top.candidate_BK.tolist() == expected.tolist()
    assert top.score_BK.tolist() == np.take_along_axis(scores, expected, 1).tolist()


@pytest.mark.parametrize("num_levels", [1, 3, 10_000])
@pytest.mark.parametrize("k", [1, 7, 99])
def test_targets_are_ranked_as_counting_ranks_them(num_levels: int, k: int) -> None:
    generator = torch.Generator().manual_seed(num_levels)
    score_BC = torch.randint(num_levels, (20, 40), generator=generator).float()
    score_BC[:, 30:] = ABSENT
    target_BT = score_BC[:, :5]
    above_BT, tied_BT = target_ranks(top_k(score_BC, k), target_BT)
    above = (score_BC[:, None, :] > target_BT[:, :, None]).sum(2)
    tied = (score_BC[:, None, :] == target_BT[:, :, None]).sum(2)
    in_list = above < k
    assert torch.equal(above_BT.clamp(max=k), above.clamp(max=k))
    assert torch.equal(tied_BT[in_list], tied[in_list])


def test_both_zeros_are_one_score() -> None:
    top = top_k(torch.tensor([[-0.0, 0.0, -1.0]]), 1)
    assert top.candidate_BK.tolist() == [[0]]
    assert [found.tolist() for found in target_ranks(top, torch.tensor([[0.0, -0.0]]))] == [
        [[0, 0]],
        [[2, 2]],
    ]


@pytest.mark.parametrize("num_columns", [256, 599, 2_000])
@pytest.mark.parametrize("num_levels", [3, 50, 100_000])
def test_many_of_many_are_found_among_the_best_groups(num_columns: int, num_levels: int) -> None:
    generator = torch.Generator().manual_seed(num_columns)
    score_BC = torch.randint(num_levels, (9, num_columns), generator=generator).float()
    score_BC[:, ::7] = ABSENT
    score_BC[3, 5:] = ABSENT
    top = top_k(score_BC, 63)
    columns = np.broadcast_to(np.arange(num_columns), score_BC.shape)
    expected = np.lexsort((columns, -score_BC.numpy()))[:, :63]
    is_item = top.score_BK != ABSENT
    assert torch.equal(top.score_BK, score_BC.gather(1, torch.from_numpy(expected)))
    assert torch.equal(top.candidate_BK[is_item], torch.from_numpy(expected)[is_item])
