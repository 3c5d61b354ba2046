"""Sample documents: batteries whose documents can be sent in by a click."""

from pathlib import Path
from typing import Final, NamedTuple

_FOLDER: Final = Path(__file__).parent / "samples"


class Sample(NamedTuple):
    name: str
    title: str
    text: str

    @property
    def files(self) -> list[Path]:
        return sorted(_FOLDER.glob(f"{self.name}-*"))


SAMPLES: Final = (
    Sample("nordcell-ev", "Fjord 82", "Traction battery of an electric car, 82 kWh, NMC"),
    Sample("voltwerk-lmt", "Lastenrad 2.6", "Battery of a cargo bike, 2.6 kWh, LFP"),
    Sample("oldpack", "Pack 80, first series", "Breaks two rules: it gets no passport"),
    Sample("hostile", "A hostile report", "XML with an entity bomb: it is refused"),
)


def sample_named(name: str) -> Sample | None:
    return next((sample for sample in SAMPLES if sample.name == name), None)
