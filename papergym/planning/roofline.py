"""How long the fused operations should take on a GPU, from its data sheet: each phase at the slower of its arithmetic and its traffic.

Phases follow one another without overlap. Peaks come from NVIDIA's data sheets (dense bf16 with fp32 sums; memory; boost clock); the shares
of them that real code reaches are assumptions until a measurement replaces them.

Legend: N rows, H hidden width, V vocabulary; times in seconds.
"""

from dataclasses import dataclass

GEMM_SHARE = 0.75  # of the peak of the matrix units that cuBLAS reaches on large shapes
TILE_SHARE = 0.6  # the same for tl.dot
MEMORY_SHARE = 0.85  # of the memory's peak that long reads and writes reach
ISSUE_SHARE = 0.8  # of the instruction slots that element-wise loops fill
# divergence_rows for an entry, its three walks together, by the machine code of sm_90 at V = 151936: all instructions, those of them with
# half as many lanes a clock (comparisons, selections, integers) and those with an eighth (exponentials), which have units of their own.
ROW_INSTRUCTIONS, ROW_HALF, ROW_EIGHTH = 132, 18, 7.25
ROW_SLOTS = max(ROW_INSTRUCTIONS, 2 * ROW_HALF, 8 * ROW_EIGHTH)
ROW_BYTES = 24  # of fp32 that these walks read for an entry, besides the gradient that they write
WORKSPACE_BYTES = 512 << 20
GEMM_ROWS = 128


@dataclass(frozen=True)
class Device:
    """flop: FLOP/s of bf16 products. bytes: B/s of memory. processors, clock: SMs and Hz, 128 lanes each.

    memory: bytes. link: B/s that a GPU receives from the others of its machine over PCIe or NVLink, about two thirds of the peak.
    """

    name: str
    flop: float
    bytes: float
    processors: int
    clock: float
    memory: int = 0
    link: float = 1.0

    def seconds(self, flop: float, traffic: float, share: float = GEMM_SHARE, instructions: float = 0.0) -> float:
        """The slowest of products, memory traffic and instructions issued (lane by lane)."""
        issued = instructions / (self.processors * 128 * self.clock * ISSUE_SHARE)
        return max(flop / (self.flop * share), traffic / (self.bytes * MEMORY_SHARE), issued)


DEVICES = {
    "a6000": Device("RTX A6000", 154.8e12, 768e9, 84, 1.80e9, 48 << 30, 20e9),
    "pro6000": Device("RTX Pro 6000", 503.8e12, 1792e9, 188, 2.60e9, 96 << 30, 40e9),
    "h100": Device("H100 SXM", 989.4e12, 3350e9, 132, 1.83e9, 80 << 30, 300e9),
    "h200": Device("H200", 989.4e12, 4800e9, 132, 1.83e9, 140 << 30, 300e9),
}


def find_device(name: str) -> Device | None:
    """The device whose data sheet belongs to the name that CUDA reports, or None."""
    squeezed = name.lower().replace(" ", "").replace("nvidia", "").replace("blackwell", "")
    return next((device for key, device in DEVICES.items() if key in squeezed), None)


def jsd_flop(rows: int, width: int, vocabulary: int) -> float:
    """Products of forward and backward with a frozen head: two projections and one contraction."""
    return 6.0 * rows * width * vocabulary


def _chunk_rows(width: int, vocabulary: int) -> int:
    """Rows that the workspace holds at once."""
    chunk = WORKSPACE_BYTES // (8 * vocabulary + 32 * width)
    return chunk - chunk % GEMM_ROWS if chunk > GEMM_ROWS else max(chunk, 1)


def jsd_seconds(device: Device, rows: int, width: int, vocabulary: int, itemsize: int = 2) -> float:
    """fused_linear_jsd, backend triton, forward and backward, shared frozen head."""
    entries = float(rows) * vocabulary
    chunks = -(-rows // _chunk_rows(width, vocabulary))
    head = chunks * vocabulary * width * itemsize
    project = device.seconds(4 * entries * width, head + 8 * entries)
    walks = device.seconds(0, (ROW_BYTES + itemsize) * entries, instructions=ROW_SLOTS * entries)
    contract = device.seconds(2 * entries * width, head + itemsize * entries)
    return project + walks + contract


def least_bytes(rows: int, width: int, vocabulary: int, itemsize: int = 2, sides: int = 2) -> float:
    """The floor of any implementation: hidden states of its sides and the head read once, the hidden gradient written once."""
    return ((sides + 1.0) * rows + vocabulary) * width * itemsize


def liger_jsd_seconds(device: Device, rows: int, width: int, vocabulary: int, itemsize: int = 2) -> float:
    """LigerFusedLinearJSD 0.8.5 below sm_100, forward with its gradient, frozen head, as its source has it.

    The same three products on chunks of 2^⌈log₂(N / ⌈V/H⌉)⌉ rows, and between them eager operations, each of which reads its operands
    and writes its result. A softmax reads a row three times, since it is too long for shared memory.
    """
    entries, parts = float(rows) * vocabulary, -(-vocabulary // width)
    chunk = min(rows, 1 << (-(-rows // parts) - 1).bit_length())
    head = -(-rows // chunk) * vocabulary * width * itemsize
    project = device.seconds(4 * entries * width, 2 * head + 8 * entries)
    # Bytes of an entry: two divisions by the temperature, two log-softmaxes and a softmax, the divergence, its sum;
    # the gradient's sum, product, difference and division, the cast.
    passes = device.seconds(0, (16 + 48 + 16 + 4 + 4 + 8 + 12 + 8 + 4 + itemsize) * entries)
    contract = device.seconds(2 * entries * width, head + itemsize * entries)
    return project + passes + contract


def jsd_peak_bytes(rows: int, width: int, itemsize: int = 2) -> float:
    """Above inputs: the workspace and the fp32 hidden gradient; in backward that gradient and its rounded copy."""
    return max(WORKSPACE_BYTES + 4.0 * rows * width, (4.0 + itemsize) * rows * width)


def logprob_flop(rows: int, width: int, vocabulary: int, backward: bool = True) -> float:
    """Products: one projection forward; another and one contraction backward."""
    return (6.0 if backward else 2.0) * rows * width * vocabulary


def logprob_seconds(device: Device, rows: int, width: int, vocabulary: int, itemsize: int = 2, backward: bool = True) -> float:
    """fused_linear_logprob, backend triton, frozen head. A row block of 128 reads the head through the L2 cache, once for all that run."""
    entries = float(rows) * vocabulary
    waves = max(1.0, rows / 128 / device.processors)
    forward = device.seconds(2 * entries * width, waves * vocabulary * width * itemsize, TILE_SHARE)
    if not backward:
        return forward
    slopes = device.seconds(2 * entries * width, waves * vocabulary * width * itemsize + itemsize * entries, TILE_SHARE)
    return forward + slopes + device.seconds(2 * entries * width, itemsize * entries)
