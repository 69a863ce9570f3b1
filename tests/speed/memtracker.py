"""Estimates the peak memory of one model of the zoo with PyTorch's MemTracker, without a GPU.

Runs a training step twice, because optimizers make their state in the first one, and prints the peak in bytes.
All tensors are fake: they have sizes, but no data.
"""

import sys

import torch
from torch import nn
from torch.distributed._tools.mem_tracker import MemTracker
from torch.nn import functional
from torch._subclasses.fake_tensor import FakeTensorMode

CLASSES = 1000


class Block(nn.Module):
    """A norm before each sublayer, as in fixtures/zoo/src/transformer.rs."""

    def __init__(self, size, heads, inner, dropout):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(size), nn.LayerNorm(size)
        self.query, self.key, self.value, self.output = (nn.Linear(size, size) for _ in range(4))
        self.feed_forward = nn.Sequential(
            nn.Linear(size, inner), nn.GELU(), nn.Dropout(dropout), nn.Linear(inner, size)
        )
        self.dropout = nn.Dropout(dropout)

    def forward(self, x, mask):
        batch, length, size = x.shape

        def split(projected):
            return projected.view(batch, length, self.heads, size // self.heads).transpose(1, 2)

        y = self.norm1(x)
        query, key, value = split(self.query(y)), split(self.key(y)), split(self.value(y))
        scores = query @ key.transpose(2, 3) / (size // self.heads) ** 0.5
        weights = self.dropout(functional.softmax(scores.masked_fill(mask, -1e4), dim=-1))
        context = (weights @ value).transpose(1, 2).reshape(batch, length, size)
        x = x + self.dropout(self.output(context))
        return x + self.dropout(self.feed_forward(self.norm2(x)))


class Transformer(nn.Module):
    """fixtures/zoo/src/transformer.rs"""

    def __init__(self, length, vocabulary=8192, size=256, layers=4, heads=4, inner=1024, dropout=0.1):
        super().__init__()
        self.token, self.position = nn.Embedding(vocabulary, size), nn.Embedding(length, size)
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList(Block(size, heads, inner, dropout) for _ in range(layers))
        self.norm, self.head = nn.LayerNorm(size), nn.Linear(size, vocabulary)

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.dropout(self.token(tokens) + self.position(torch.arange(length, device=tokens.device)))
        for block in self.blocks:
            x = block(x, mask)
        return self.head(self.norm(x))


class Layer(nn.Module):
    """Attention whose heads share keys and values, as in fixtures/zoo/src/decoder.rs."""

    def __init__(self, size, heads, shared, inner):
        super().__init__()
        self.heads, self.shared, self.head = heads, shared, size // heads
        self.norm1, self.norm2 = nn.RMSNorm(size), nn.RMSNorm(size)
        self.q_proj, self.o_proj = nn.Linear(size, size, bias=False), nn.Linear(size, size, bias=False)
        self.k_proj = nn.Linear(size, shared * self.head, bias=False)
        self.v_proj = nn.Linear(size, shared * self.head, bias=False)
        self.gate_proj, self.up_proj = nn.Linear(size, inner, bias=False), nn.Linear(size, inner, bias=False)
        self.down_proj = nn.Linear(inner, size, bias=False)

    def forward(self, x, cos, sin, mask):
        batch, length, size = x.shape

        def split(projected, heads):
            return projected.view(batch, length, heads, self.head).transpose(1, 2)

        def rotated(heads):
            first, second = heads.chunk(2, dim=-1)
            return heads * cos + torch.cat((-second, first), dim=-1) * sin

        def repeated(heads):
            return heads.repeat_interleave(self.heads // self.shared, dim=1)

        y = self.norm1(x)
        query = rotated(split(self.q_proj(y), self.heads))
        key = repeated(rotated(split(self.k_proj(y), self.shared)))
        value = repeated(split(self.v_proj(y), self.shared))
        scores = query @ key.transpose(2, 3) / self.head**0.5
        weights = functional.softmax(scores.masked_fill(mask, float("-inf")), dim=-1)
        x = x + self.o_proj((weights @ value).transpose(1, 2).reshape(batch, length, size))
        y = self.norm2(x)
        return x + self.down_proj(functional.silu(self.gate_proj(y)) * self.up_proj(y))


class Decoder(nn.Module):
    """fixtures/zoo/src/decoder.rs"""

    def __init__(self, length, vocabulary=32000, size=2048, layers=22, heads=32, shared=4, inner=5632):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, size)
        self.layers = nn.ModuleList(Layer(size, heads, shared, inner) for _ in range(layers))
        self.norm, self.lm_head = nn.RMSNorm(size), nn.Linear(size, vocabulary, bias=False)
        head = size // heads
        frequency = 10000.0 ** (-2.0 * torch.arange(head // 2) / head)
        angle = torch.arange(length)[:, None] * frequency[None, :]
        angle = torch.cat((angle, angle), dim=1)
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, tokens):
        length = tokens.shape[1]
        mask = torch.ones(length, length, dtype=torch.bool, device=tokens.device).triu(1)
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x, self.cos, self.sin, mask)
        return self.lm_head(self.norm(x))


def images(batch):
    return lambda: (torch.zeros(batch, 3, 224, 224), torch.zeros(batch, dtype=torch.long))


def tokens(batch, length):
    return lambda: (torch.zeros(batch, length, dtype=torch.long), torch.zeros(batch, length, dtype=torch.long))


def torchvision_model(name):
    import torchvision.models

    return getattr(torchvision.models, name)(num_classes=CLASSES)


# The models, batches and optimizers of fixtures/zoo/benches/vram.rs.
MODELS = {
    "vgg16": (lambda: torchvision_model("vgg16"), images(32), torch.optim.Adam),
    "resnet18": (lambda: torchvision_model("resnet18"), images(32), torch.optim.Adam),
    "transformer": (lambda: Transformer(256), tokens(8, 256), torch.optim.AdamW),
    "decoder": (lambda: Decoder(256), tokens(1, 256), torch.optim.AdamW),
    "densenet201": (lambda: torchvision_model("densenet201"), images(8), torch.optim.Adam),
}


def main():
    make_model, make_batch, make_optimizer = MODELS[sys.argv[1]]
    # Fake tensors on the CPU: without a GPU, PyTorch's backward pass refuses fake tensors on a GPU.
    with FakeTensorMode():
        model = make_model()
        optimizer = make_optimizer(model.parameters())
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for step in range(2):
                inputs, targets = make_batch()
                logits = model(inputs)
                loss = functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                if step == 0:
                    tracker.reset_mod_stats()
        peak = tracker.get_tracker_snapshot("peak")
    print(sum(snapshot["Total"] for snapshot in peak.values()))


if __name__ == "__main__":
    main()
