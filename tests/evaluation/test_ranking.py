import numpy as np
import pytest
import torch

from foretaste.evaluation.ranking import ABSENT, mask_items_, target_ranks, top_k
from foretaste.ops.histories import HistoryTensors


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


@pytest.mark.parametrize("num_columns", [1, 40, 700])
@pytest.mark.parametrize("num_targets", [1, 2, 50])
@pytest.mark.parametrize("k", [1, 7, 99])
@pytest.mark.parametrize("num_levels", [1, 3, 100_000])
def test_targets_are_ranked_as_counting_ranks_them(
    num_levels: int, k: int, num_targets: int, num_columns: int
) -> None:
    generator = torch.Generator().manual_seed(num_levels)
    score_BC = torch.randint(num_levels, (30, num_columns), generator=generator).float()
    column_BT = torch.randint(num_columns, (30, num_targets), generator=generator)
    column_BT[::2, ::3] = score_BC[::2].argmax(1, keepdim=True)
    target_BT = score_BC.gather(1, column_BT)  # some of them masked below, like known items
    score_BC[:, ::7] = ABSENT
    score_BC[3, 5:] = ABSENT
    score_BC[4] = ABSENT
    target_BT[5] = ABSENT
    target_BT[6, num_targets // 2 :] = ABSENT
    above_BT, tied_BT = target_ranks(score_BC, target_BT, k)
    above = (score_BC[:, None, :] > target_BT[:, :, None]).sum(2)
    tied = (score_BC[:, None, :] == target_BT[:, :, None]).sum(2).clamp(min=1)
    k = min(k, num_columns)
    is_listed = (above < k) & (target_BT != ABSENT)
    assert torch.equal(above_BT, torch.where(is_listed, above, k))
    assert torch.equal(tied_BT, torch.where(is_listed, tied, 1))


def test_infinite_scores_are_ranked_like_others() -> None:
    score_BC = torch.linspace(-1.0, 1.0, 400).repeat(2, 1)
    score_BC[0, :3] = float("inf")
    target_BT = torch.tensor([[float("inf"), 1.0, 0.5], [1.0, float("inf"), 0.5]])
    above_BT, tied_BT = target_ranks(score_BC, target_BT, 10)
    assert above_BT.tolist() == [[0, 3, 10], [0, 0, 10]]
    assert tied_BT.tolist() == [[3, 1, 1], [1, 1, 1]]


def test_no_users_or_no_targets_give_no_ranks() -> None:
    assert [found.shape for found in target_ranks(torch.zeros(0, 9), torch.zeros(0, 3), 5)] == [
        (0, 3)
    ] * 2
    assert [found.shape for found in target_ranks(torch.zeros(4, 9), torch.zeros(4, 0), 5)] == [
        (4, 0)
    ] * 2


def test_both_zeros_are_one_score() -> None:
    score_BC = torch.tensor([[-0.0, 0.0, -1.0]])
    assert top_k(score_BC, 1).candidate_BK.tolist() == [[0]]
    found = target_ranks(score_BC, torch.tensor([[0.0, -0.0]]), 1)
    assert [ranks.tolist() for ranks in found] == [[[0, 0]], [[2, 2]]]


def test_known_items_are_masked_in_the_scores_themselves() -> None:
    score_BI = torch.arange(12.0).view(3, 4)
    histories = HistoryTensors(torch.tensor([0, 2, 2, 3]), torch.tensor([0, 3, 1]).int(), 4)
    assert mask_items_(score_BI, histories) is score_BI
    assert (score_BI == ABSENT).nonzero().tolist() == [[0, 0], [0, 3], [2, 1]]


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
