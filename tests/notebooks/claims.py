"""Which notebook proves which claim of the course: a cell with the tag `claim-N`, and an assertion in it."""

CLAIMS: dict[int, tuple[str, ...]] = {
    1: ("03_attention",),  # softmax(QKᵀ/√d_k)V
    2: ("03_attention",),  # without the scale, softmax saturates as d_k grows
    3: ("05_multi_head_attention", "15_why_transformers_work"),  # heads attend to different things
    4: ("06_positional_encoding",),  # attention alone has no order
    5: ("06_positional_encoding",),  # sinusoidal and learned positions restore it
    6: ("07_feed_forward_and_residuals",),  # the feed-forward acts on each position alone
    7: ("07_feed_forward_and_residuals",),  # post-norm and pre-norm
    8: ("09_decoder",),  # the decoder never sees the future
    9: ("09_decoder",),  # cross-attention connects every target with every source position
    10: ("15_why_transformers_work",),  # all positions at once against T steps
    11: ("02_sequence_to_sequence", "15_why_transformers_work"),  # O(1) against O(T) operations apart
    12: ("15_why_transformers_work",),  # O(T²d) against O(Td²)
    13: ("15_why_transformers_work",),  # quality grows with data and compute
    14: ("16_efficient_attention",),  # what sparse, linear and state-space layers trade
    15: ("23_vit",),  # no built-in locality
    16: ("20_bert",),  # fine-tuning against from scratch
    17: ("20_bert", "21_gpt", "22_t5", "23_vit", "24_dino", "25_multimodal", "26_audio", "27_protein"),
}
