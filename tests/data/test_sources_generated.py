"""Sources that need no files."""

import torch

from cwfed.data.sources import Digits, SyntheticImages


def test_digits():
    data = Digits().load()
    assert data.images_NCHW.shape == (1797, 1, 28, 28)
    assert data.class_names == tuple("0123456789")
    small = Digits(8).load()
    assert small.images_NCHW.max() == 255
    assert small.class_counts_K().tolist() == data.class_counts_K().tolist()


def test_synthetic_images_can_be_learned_and_repeat():
    source = SyntheticImages(num_classes=5, samples_per_class=20, image_size=12, channels=3)
    data = source.load()
    assert data.input_shape == (3, 12, 12)
    assert torch.equal(data.images_NCHW, source.load().images_NCHW)
    assert SyntheticImages(5, 20, 12, 3, seed=1).load().content_hash != data.content_hash
    pixels = data.images_NCHW.flatten(1).float()
    centres = torch.stack([pixels[data.labels_N == k].mean(0) for k in range(5)])
    assert torch.equal(torch.cdist(pixels, centres).argmin(1), data.labels_N)


def test_synthetic_classes_do_not_depend_on_their_number():
    few, many = (SyntheticImages(num_classes=k, samples_per_class=3).load() for k in (2, 4))
    assert torch.equal(few.images_NCHW, many.images_NCHW[: len(few)])


def test_synthetic_pixels_are_the_same_everywhere():
    data = SyntheticImages(num_classes=2, samples_per_class=2, image_size=5).load()
    pinned = "3f1a862e21363955eb0d1733d271b554baa73854900a339e19639d8a3ead3441"
    assert data.content_hash == pinned
