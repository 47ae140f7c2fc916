"""What a plan makes of a model and its data: batches, and the step that learns from them."""

from __future__ import annotations

import torch

from foretaste.models.base import NeuralModel
from foretaste.models.neumf.config import SamplingConfig
from foretaste.ops.histories import HistoryTensors
from foretaste.ops.torch_internals import Adam
from foretaste.training.batches import Batches, InteractionBatches
from foretaste.training.cuda_graph import CudaGraphRecorder, RecordedStep
from foretaste.training.history_batches import HistoryBatches
from foretaste.training.precision import PrecisionPolicy
from foretaste.training.resolve import TrainingPlan
from foretaste.training.step import Step


def prepared_step(
    model: NeuralModel, batches: Batches, plan: TrainingPlan, precision: PrecisionPolicy
) -> Step:
    """Give ``model`` its first weights and the dtype of its products; returns how it learns."""
    model.reset_parameters(plan.seed)
    model.compute_dtype = precision.compute_dtype
    model.implementation = "compiled" if plan.compile else plan.kernels
    optimizer = adam(model, plan)
    num_samples = batches.samples_per_batch
    if is_recorded(model, plan, num_samples):
        recorder = CudaGraphRecorder(model.device)
        return RecordedStep(model, optimizer, precision, recorder, num_samples)
    return Step(model, optimizer, precision)


def is_recorded(model: NeuralModel, plan: TrainingPlan, num_samples: int) -> bool:
    """Whether the step of a full batch, of so many samples, becomes a CUDA graph."""
    on_gpu = plan.cuda_graphs and model.device.type == "cuda"
    return on_gpu and not model.waits_for_device(num_samples)


def prepared_batches(
    model: NeuralModel,
    histories: HistoryTensors,
    sampling: SamplingConfig | None,
    plan: TrainingPlan,
) -> Batches:
    """The batches of a plan: interactions with ``sampling``, else whole histories."""
    if sampling is not None:
        return InteractionBatches(histories, sampling, plan.batch_size, plan.seed)
    padded = is_recorded(model, plan, plan.batch_size)
    return HistoryBatches(histories, plan.batch_size, plan.seed, padded=padded)


def adam(model: torch.nn.Module, plan: TrainingPlan) -> torch.optim.Optimizer:
    """The optimizer of a plan: Adam over every parameter, each step in one fused pass."""
    return Adam(
        [parameter for parameter in model.parameters() if parameter.numel()],
        lr=plan.learning_rate,
        betas=(plan.beta1, plan.beta2),
        eps=plan.eps,
        fused=True,
        capturable=plan.device.startswith("cuda"),
    )
