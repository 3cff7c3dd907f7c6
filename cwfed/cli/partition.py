"""``cwfed partition``: how a data set is divided, on the screen and in files."""

from collections.abc import Sequence

from cwfed.config.files import order_arguments, output_file, user_path
from cwfed.config.guard import setting_up
from cwfed.config.parser import build, make_parser, parse
from cwfed.data.pfllib_writer import require_new, save_pfllib
from cwfed.launch.start import data_folder
from cwfed.messages.terminal import Terminal
from cwfed.records.manifest import Manifest
from cwfed.report.partition import SUFFIXES, partition_table, plot_partition
from cwfed.runs.experiment import blaming

_SAVE_PFLLIB_HELP = (
    "Write images and partition into a new folder in PFLlib's layout: config.json, train/N.npz and "
    "test/N.npz with float32 images [n, C, H, W] normalised to [-1, 1]."
)


def partition(arguments: Sequence[str]) -> int:
    """Print and draw how the data are divided."""
    parser = make_parser("partition", "Show how a data set is divided among the clients.")
    parser.add_argument("--plot", type=str | None, default=None, help="Draw it: a .png or .pdf.")
    parser.add_argument("--save", type=str | None, default=None, help="Write it as JSON.")
    parser.add_argument("--save_pfllib", type=str | None, default=None, help=_SAVE_PFLLIB_HELP)
    terminal = Terminal()
    with setting_up():
        config = parse(parser, order_arguments(arguments))
        plot = config.plot and output_file("--plot", config.plot, SUFFIXES)
        save = config.save and output_file("--save", config.save, (".json",))
        folder = config.save_pfllib and user_path(config.save_pfllib, "--save_pfllib")
        if folder:
            with blaming("--save_pfllib"):
                require_new(folder)
        experiment, _ = build(parser, config)
        images, manifest = experiment.divide(data_folder(config))
        labels, names = images.labels_N, images.class_names
        terminal.print(partition_table(manifest, labels, names, terminal.width))
        terminal.say(_summary(manifest))
        if plot:
            plot_partition(manifest, labels, names, plot)
            terminal.say(f"drawn in {plot}")
        if save:
            manifest.save(save)
            terminal.say(f"written to {save}")
        if folder:
            save_pfllib(images, manifest, experiment.partition, folder)
            terminal.say(f"images and partition written to {folder}")
    return 0


def _summary(manifest: Manifest) -> str:
    origin = ", ".join(f"{name}: {value}" for name, value in (manifest.origin or {}).items())
    return f"partition {manifest.hash}" + (f"\n{origin}" if origin else "")
