"""A problem with two planted groups of clients whose labels contradict each other."""

from dataclasses import replace

import numpy as np
from helpers import small_experiment

from cwfed.data.partitioners import Partitioner
from cwfed.data.sources import SyntheticImages


class TwoConcepts(SyntheticImages):
    """Every second image of a class is labelled as the class after."""

    def load(self, data_dir=None, *, cache_dir=None):
        images = super().load(data_dir, cache_dir=cache_dir)
        labels = images.labels_N.clone()
        labels[1::2] = (labels[1::2] + 1) % images.num_classes
        return replace(images, labels_N=labels)


class ByConcept(Partitioner):
    """Gives client i images of concept `concepts[i]`, dealt like cards."""

    def __init__(self, concepts):
        self.concepts = concepts
        self.num_clients = len(concepts)

    def split(self, labels_N, num_classes, seed):
        index = np.arange(len(labels_N))
        shares = []
        for client, concept in enumerate(self.concepts):
            group = [i for i, other in enumerate(self.concepts) if other == concept]
            mine = (index % 2 == concept) & (index // 2 % len(group) == group.index(client))
            shares.append(index[mine])
        return shares


def planted_experiment(aggregator, concepts, **changes):
    settings = {
        "data": TwoConcepts(num_classes=4, samples_per_class=120, image_size=8),
        "partition": ByConcept(concepts),
        "objectives": [],
        "dropout": 0.0,
    }
    return small_experiment(aggregator, **settings | changes)
