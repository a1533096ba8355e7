"""Training the model of a vector index that is built in parts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from lance.indices import IndicesBuilder
from lance.lance import indices as native

from ..addresses import Access

_SAMPLE_RATE = 256
_ITERATIONS = 50
_PARTITION_ROWS = 8192
_LEAST_SAMPLES = 2
_RABIT_BITS = 5
"""What Lance takes unless told."""


@dataclass(frozen=True)
class Model:
    """What all tasks of one index share. Pickles."""

    centroids: pa.FixedSizeListArray
    codebook: pa.FixedSizeListArray | None = None
    rotation: str | None = None

    def arguments(self) -> dict[str, Any]:
        """Return it as pylance takes it."""
        given: dict[str, Any] = {
            "ivf_centroids": self.centroids,
            "num_partitions": len(self.centroids),
        }
        if self.codebook is not None:
            given["pq_codebook"] = self.codebook
        if self.rotation is not None:
            given["rabitq_model"] = self.rotation
        return given


@dataclass(frozen=True)
class Training:
    """What a task needs to train a model on a sample of a table's vectors."""

    access: Access
    column: str
    kind: str
    options: dict[str, Any] = field(default_factory=dict)

    def train(self) -> Model:
        """Train it; the sample bounds the memory, not the table."""
        dataset = self.access.open()
        builder, rows = IndicesBuilder(dataset, self.column), dataset.count_rows()
        rate = int(self.options.get("sample_rate", _SAMPLE_RATE))
        iterations = int(self.options.get("max_iters", _ITERATIONS))
        parts = self._partitions(rows)
        ivf = builder.train_ivf(
            parts,
            distance_type=self.options["metric"],
            sample_rate=max(_LEAST_SAMPLES, min(rate, rows // parts)),
            max_iters=iterations,
        )
        if "PQ" in self.kind:
            bits = int(self.options.get("num_bits", 8))
            pq = builder.train_pq(
                ivf,
                self.options["num_sub_vectors"],
                sample_rate=max(_LEAST_SAMPLES, min(rate, rows // 2**bits)),
                max_iters=iterations,
                num_bits=bits,
            )
            return Model(ivf.centroids, pq.codebook)
        if self.kind == "IVF_RQ":
            bits = int(self.options.get("num_bits", _RABIT_BITS))
            return Model(ivf.centroids, None, native.build_rq_model(builder.dimension, bits))
        return Model(ivf.centroids)

    def _partitions(self, rows: int) -> int:
        given = self.options.get("num_partitions")
        if given is not None:
            return int(given)
        size = int(self.options.get("target_partition_size", _PARTITION_ROWS))
        return max(1, rows // size)
