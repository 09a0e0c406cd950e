"""Kernels of evo in a Llama of transformers: `use_kernels(model)`. torch.compile takes the model, too."""

import torch
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

import evo

attention, rmsnorm = evo.kernel("attention"), evo.kernel("rmsnorm")


def evo_attention(module, query, key, value, attention_mask, scaling=None, dropout=0.0, **named):
    usual = scaling in (None, query.shape[-1] ** -0.5) and not dropout
    if attention_mask is not None or query.shape[2] != key.shape[2] or not usual:  # decoding, padding
        named |= {"scaling": scaling, "dropout": dropout}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **named)
    groups = query.shape[1] // key.shape[1]
    key, value = (x.repeat_interleave(groups, 1) if groups > 1 else x for x in (key, value))
    o = attention(query.contiguous(), key.contiguous(), value.contiguous(), causal=module.is_causal)
    return o.transpose(1, 2).contiguous(), None


class Norm(torch.nn.Module):
    def __init__(self, norm):
        super().__init__()
        self.weight = norm.weight

    def forward(self, x):
        if torch.compiler.is_compiling():  # it joins a norm with what is around it: a launch less
            return torch.nn.functional.rms_norm(x, x.shape[-1:], self.weight, 1e-6)
        return rmsnorm(x.reshape(-1, x.shape[-1]), self.weight).view(x.shape)


def use_kernels(model):
    """Attention without a cache or padding, and norms of eps 1e-6, go to evo; all else stays as it is."""
    AttentionInterface.register("evo", evo_attention)
    AttentionMaskInterface.register("evo", sdpa_mask)
    model.set_attn_implementation("evo")
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "LlamaRMSNorm" and module.variance_epsilon == 1e-6:
            model.set_submodule(name, Norm(module))
