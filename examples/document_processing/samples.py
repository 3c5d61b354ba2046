"""Documents to begin with. All that looks personal in them is made up, out of reserved ranges."""

from typing import Final, NamedTuple


class Sample(NamedTuple):
    owner: str
    title: str
    text: str
    readers: tuple[str, ...] = ()
    """Who may read it too."""


SAMPLES: Final = (
    Sample(
        "ada",
        "Discharge letter, ward 4",
        """\
Dear colleague, thank you for taking over the care of Mrs Harriet Quimby, who was on our ward \
for six days. She can be reached at harriet.quimby@example.com or on +44 20 7946 0958.

The patient was admitted with pneumonia. The pneumonia responded to the treatment within two \
days, and the treatment was changed from infusion to tablets on the third day. Two controls of \
the lungs showed no effusion.

We recommend a control of the lungs in four weeks. The treatment with tablets should be \
continued for five more days. Please send the bill to our office; the deposit was paid by card \
4111 1111 1111 1111.

With kind regards, Dr. Samuel Okafor""",
    ),
    Sample(
        "ada",
        "Mietvertrag, Praxisräume",
        """\
Zwischen der Hausverwaltung, vertreten durch Frau Erika Mustermann, und der \
Gemeinschaftspraxis wird der folgende Mietvertrag geschlossen.

Vermietet werden die Praxisräume im zweiten Stock. Die Praxisräume werden als Arztpraxis \
genutzt; eine andere Nutzung bedarf der Zustimmung der Hausverwaltung.

Die Miete ist am dritten Werktag des Monats fällig. Die Miete wird auf das Konto DE89 3704 \
0044 0532 0130 00 gezahlt. Rückfragen an verwaltung@example.org oder 030 23125 0100.""",
        readers=("ben",),
    ),
    Sample(
        "cleo",
        "Réclamation de Mme Dubois",
        """\
Madame, Monsieur, je vous écris au sujet de la livraison du 3 mars, qui est arrivée avec deux \
semaines de retard. Une partie de la livraison était abîmée.

Je vous prie de remplacer les pièces abîmées, ou de rembourser la livraison sur le compte FR14 \
2004 1010 0505 0001 3M02 606. Vous pouvez me joindre au +33 1 99 00 12 34.

Mme Claire Dubois""",
    ),
)
