"""The users, and what they may do: the login of this application, in the terms of Gantline."""

import secrets
from typing import Final

import msgspec

from examples.document_processing.documents import Documents
from gantline.auth import Action, Credentials, DefaultAuthorizer, Principal, Role, Target

COOKIE: Final = "session"


class Person(msgspec.Struct, frozen=True):
    id: str
    name: str
    company: str
    is_operator: bool = False


PEOPLE: Final = {
    person.id: person
    for person in (
        Person("ada", "Ada", "northwind"),
        Person("ben", "Ben", "northwind"),
        Person("cleo", "Cleo", "southgate"),
        Person("olga", "Olga", "operations", is_operator=True),
    )
}


class Sessions:
    """An authenticator by cookie. Yours asks for a password; this one does not."""

    challenge = "Cookie"

    def __init__(self, documents: Documents) -> None:
        self._documents = documents
        self._people: dict[str, Person] = {}

    def begin(self, person: Person) -> str:
        token = secrets.token_urlsafe()
        self._people[token] = person
        return token

    async def authenticate(self, credentials: Credentials) -> Principal | None:
        person = self._people.get(credentials.cookies.get(COOKIE, ""))
        return None if person is None else self._principal(person)

    def _principal(self, person: Person) -> Principal:
        """The documents that a user may read are the subjects that are granted to the user.

        The operator steers the jobs of all companies, and may read no document.
        """
        return Principal(
            id=person.id,
            tenant_id=person.company,
            subjects=self._documents.readable_by(person.id),
            roles=frozenset({Role.OPERATOR}) if person.is_operator else frozenset(),
            is_system=person.is_operator,
        )


class ByDocument(DefaultAuthorizer):
    """As by default, and no user submits a job about a document that is not granted."""

    async def may(self, principal: Principal, action: Action, target: Target) -> bool:
        if action is Action.SUBMIT and target.subject_id not in principal.subjects:
            return False
        return await super().may(principal, action, target)
