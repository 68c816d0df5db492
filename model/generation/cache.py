"""Keys and values of a batch of sampled groups: each prompt's once, each sample's own.

Shapes: G groups in the batch, N samples of the largest group, R rows (samples still alive), Hq query and Hkv key and value heads,
r = Hq / Hkv, D head_dim, P tokens of the longest prompt, W columns of a sample's own keys so far.

Everything is laid out [G, Hkv, N, ...]. To a prompt's keys [Hkv, P, D] the N·r queries that share a head are one matrix, so the prompt is
read from memory once a step and not once a sample. All samples write the same column in a step, whenever they started; a sample that
started later masks the columns before its own. Keys carry their rotation already, so a column says nothing about a position.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from papergym.kernels.cpu import decoding
from papergym.model.attention import causal_attention

_BLOCK = 64  # columns to grow by
_WORTH_COMPACTING = 0.75  # share of the places in use below which storage is rebuilt without the others


class PrefillCache:
    """Attention over whole prompts, padded on the right; keeps their keys and values, [prompts, Hkv, T, D], by layer."""

    def __init__(self) -> None:
        self._layers: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        self._layers[layer] = key, value
        return causal_attention(layer, query, key, value)

    def layer_keys(self) -> list[Tensor]:
        """Every layer's keys, in order."""
        return [self._layers[layer][0] for layer in range(len(self._layers))]

    def take(self, layer: int) -> tuple[Tensor, Tensor]:
        """Hands over a layer's keys and values, so that they are freed before the next layer is copied."""
        return self._layers.pop(layer)


@dataclass
class _Layer:
    prompt_keys: Tensor  # [G, Hkv, P, D]
    prompt_values: Tensor
    keys: Tensor  # [G, Hkv, N, columns allocated, D]
    values: Tensor

    @classmethod
    def empty(cls, like: Tensor) -> "_Layer":
        """Without groups; like [.., Hkv, .., D] gives heads, dtype and device."""
        prompts = like.new_empty(0, like.shape[1], 0, like.shape[3])
        return cls(prompts, prompts, prompts[:, :, None], prompts[:, :, None])


class GroupCache:
    """The cache that decoding attends to. Rows are numbered group after group, in the order they were added."""

    def __init__(self) -> None:
        self._layers: list[_Layer] = []
        self._lengths: list[int] = []  # [G] of the prompts
        self._starts: list[list[int]] = []  # [G, N] first column of each sample
        self._rows: list[tuple[int, int]] = []  # group and place in the group
        self._width = 0  # W
        self._index: Tensor | None = None  # rows' places in [G · N]; None while every place is a row
        self._mask: Tensor | None = None  # added to the scores, [G, 1, N, 1, P + W]; None while nothing is masked
        self._compiled = False  # whether this step attends by the CPU library
        self._layout: tuple[Tensor, ...] = ()  # rows' places [R], prompts' lengths [G] and first columns [G, N], for the compiled route

    def add(self, prefill: PrefillCache, lengths: Sequence[int], n: int) -> None:
        """Appends prompts of the given lengths as groups of n rows each."""
        self._rebuild(prefill, lengths, n)

    def keep(self, rows: Sequence[int]) -> None:
        """Goes on with these rows, given in ascending order, and forgets the others."""
        self._rows = [self._rows[row] for row in rows]
        widest = max((len(places) for places in self._places().values()), default=0)
        if len(self._places()) * widest <= _WORTH_COMPACTING * self._capacity():
            self._rebuild()
        else:
            self._set_index()

    def begin_step(self) -> None:
        """Makes room for one more token a row. Call it before each forward pass of [R, 1] tokens."""
        if self._width == self._layers[0].keys.shape[3]:
            self._rebuild()
        self._width += 1
        first = self._layers[0]
        self._compiled = decoding.available(first.keys) and first.keys.dtype == first.values.dtype
        if not self._compiled:
            self._set_mask()

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        """query [R,Hq,1,D], key and value [R,Hkv,1,D] of the rows' newest tokens -> [R,Hq,1,D]. Softmax in fp32."""
        store = self._layers[layer]
        if self._compiled:
            prompts, own = (store.prompt_keys, store.prompt_values), (store.keys, store.values)
            return decoding.attend(query, key, value, prompts, own, self._width, *self._layout)
        groups, heads, places, _, dim = store.keys.shape
        store.keys[:, :, :, self._width - 1] = self._to_grid(key, heads)
        store.values[:, :, :, self._width - 1] = self._to_grid(value, heads)
        keys, values = store.keys[:, :, :, : self._width], store.values[:, :, :, : self._width]

        grid = self._to_grid(query, heads).reshape(groups, heads, places, -1, dim)  # [G, Hkv, N, r, D]
        prompt_scores = grid.flatten(2, 3) @ store.prompt_keys.transpose(-1, -2)  # [G, Hkv, N·r, P]
        scores = torch.cat((prompt_scores.view(*grid.shape[:4], -1), grid @ keys.transpose(-1, -2)), -1)  # [G, Hkv, N, r, P + W]
        scores = scores.float() * dim**-0.5
        if self._mask is not None:
            scores += self._mask
        prompt_weights, weights = scores.softmax(-1).to(query.dtype).split((store.prompt_keys.shape[2], self._width), -1)
        attended = (prompt_weights.flatten(2, 3) @ store.prompt_values).view_as(grid) + weights @ values
        rows = attended.transpose(1, 2).reshape(groups * places, -1, 1, dim)  # [G·N, Hq, 1, D]
        return rows if self._index is None else rows[self._index]

    def _to_grid(self, x: Tensor, heads: int) -> Tensor:
        """[R, h, 1, D] -> [G, Hkv, N, h / Hkv · D], zeros in places without a row."""
        groups, places = len(self._starts), len(self._starts[0])
        if self._index is not None:
            x = x.new_zeros(groups * places, *x.shape[1:]).index_copy_(0, self._index, x)
        return x.reshape(groups, places, heads, -1).transpose(1, 2)

    def _places(self) -> dict[int, list[int]]:
        """Places in use by group."""
        places: dict[int, list[int]] = {}
        for group, place in self._rows:
            places.setdefault(group, []).append(place)
        return places

    def _capacity(self) -> int:
        return sum(map(len, self._starts))

    def _rebuild(self, prefill: PrefillCache | None = None, added: Sequence[int] = (), n: int = 0) -> None:
        """Lays everything out again: without the places that no row uses, with the added groups, and with room to grow."""
        used = self._places()
        kept, widest = list(used), max([n, *map(len, used.values())])
        # A group smaller than the widest repeats its first sample; those places are no rows.
        sources = [places + places[:1] * (widest - len(places)) for places in used.values()]
        first = min((self._starts[group][place] for group, place in self._rows), default=self._width)
        if prefill is not None and not self._layers:
            self._layers = [_Layer.empty(key) for key in prefill.layer_keys()]
        lengths = [self._lengths[group] for group in kept] + list(added)
        span, longest = slice(first, self._width), max(lengths, default=0)
        shape = (len(lengths), widest, (self._width - first) // _BLOCK * _BLOCK + _BLOCK)
        for index, layer in enumerate(self._layers):
            keys, values = (None, None) if prefill is None else prefill.take(index)
            self._layers[index] = _Layer(
                _extend(layer.prompt_keys, kept, longest, keys),
                _extend(layer.prompt_values, kept, longest, values),
                _lay_out(layer.keys, kept, sources, span, shape),
                _lay_out(layer.values, kept, sources, span, shape),
            )
        self._width -= first
        self._lengths = lengths
        self._starts = [[self._starts[group][place] - first for place in places] for group, places in zip(kept, sources)]
        self._starts += [[self._width] * widest for _ in added]
        self._rows = [(group, place) for group, places in enumerate(used.values()) for place in range(len(places))]
        self._rows += [(len(kept) + group, place) for group in range(len(added)) for place in range(n)]
        self._set_index()

    def _set_index(self) -> None:
        self._index = None
        if not self._rows:
            return
        places, device = len(self._starts[0]), self._layers[0].keys.device
        index = torch.tensor([group * places + place for group, place in self._rows], device=device)
        self._layout = index, torch.tensor(self._lengths, device=device), torch.tensor(self._starts, device=device)
        if len(index) < self._capacity():
            self._index = index

    def _set_mask(self) -> None:
        longest, device = max(self._lengths), self._layers[0].keys.device
        self._mask = None
        if min(self._lengths) == longest and not any(map(any, self._starts)):
            return
        lengths, starts = torch.tensor(self._lengths, device=device), torch.tensor(self._starts, device=device)
        prompt = torch.arange(longest, device=device) >= lengths[:, None, None]  # [G, 1, P]
        own = torch.arange(self._width, device=device) < starts[:, :, None]  # [G, N, W]
        hidden = torch.cat((prompt.expand(-1, starts.shape[1], -1), own), -1)
        self._mask = torch.zeros(hidden.shape, device=device).masked_fill_(hidden, float("-inf"))[:, None, :, None]


def _extend(prompts: Tensor, kept: list[int], longest: int, added: Tensor | None) -> Tensor:
    """Keys or values of the kept groups' prompts, then of added ones, [G, Hkv, longest, D]; zeros behind the shorter."""
    parts = [prompts[kept, :, :longest]] + ([added] if added is not None else [])
    return torch.cat([F.pad(part, (0, 0, 0, longest - part.shape[2])) for part in parts])


def _lay_out(columns: Tensor, kept: list[int], sources: list[list[int]], span: slice, shape: tuple[int, int, int]) -> Tensor:
    """Samples' keys or values in a new [groups, Hkv, places, columns, D]: a span of columns from the source places of the kept groups."""
    groups, places, width = shape
    out = columns.new_zeros(groups, columns.shape[1], places, width, columns.shape[-1])
    if kept and span.start < span.stop:
        group = torch.tensor(kept, device=columns.device)[:, None, None]
        head = torch.arange(columns.shape[1], device=columns.device)[:, None]
        place = torch.tensor(sources, device=columns.device)[:, None]
        out[: len(kept), :, :, : span.stop - span.start] = columns[:, :, :, span][group, head, place]
    return out
