import numpy as np
import pytest
import torch

from foretaste.evaluation.places import ABSENT, place_targets, top_list


@pytest.mark.parametrize("num_levels", [1, 3, 10_000])
@pytest.mark.parametrize("num_places", [1, 7, 40, 99])
def test_lists_are_ordered_by_score_then_column(num_levels: int, num_places: int) -> None:
    generator = np.random.default_rng(num_levels)
    scores = generator.integers(0, num_levels, size=(30, 40)).astype(np.float32)
    top = top_list(torch.tensor(scores), num_places)
    columns = np.broadcast_to(np.arange(40), scores.shape)
    expected = np.lexsort((columns, -scores))[:, :num_places]
    assert top.candidate_BP.tolist() == expected.tolist()
    assert top.score_BP.tolist() == np.take_along_axis(scores, expected, 1).tolist()


@pytest.mark.parametrize("num_levels", [1, 3, 10_000])
@pytest.mark.parametrize("num_places", [1, 7, 99])
def test_targets_are_placed_as_counting_places_them(num_levels: int, num_places: int) -> None:
    generator = torch.Generator().manual_seed(num_levels)
    score_BC = torch.randint(num_levels, (20, 40), generator=generator).float()
    score_BC[:, 30:] = ABSENT
    target_BT = score_BC[:, :5]
    above_BT, tied_BT = place_targets(top_list(score_BC, num_places), target_BT)
    above = (score_BC[:, None, :] > target_BT[:, :, None]).sum(2)
    tied = (score_BC[:, None, :] == target_BT[:, :, None]).sum(2)
    in_list = above < num_places
    assert torch.equal(above_BT.clamp(max=num_places), above.clamp(max=num_places))
    assert torch.equal(tied_BT[in_list], tied[in_list])


def test_both_zeros_are_one_score() -> None:
    top = top_list(torch.tensor([[-0.0, 0.0, -1.0]]), 1)
    assert top.candidate_BP.tolist() == [[0]]
    assert [found.tolist() for found in place_targets(top, torch.tensor([[0.0, -0.0]]))] == [
        [[0, 0]],
        [[2, 2]],
    ]
