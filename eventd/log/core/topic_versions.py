"""Which changes of topics, routers and API keys this process knows, by `Head.topics_version`."""

from __future__ import annotations


class TopicVersions:
    """The values of `Head.topics_version` whose changes this process knows. Each change increases the version by one.

    A change by this process is known at once. Changes by other processes must be read.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Forget all versions: the log has begun a new epoch, and the database may lack known changes."""
        self._read = self._known = 0
        self._made: set[int] = set()  # after a change by another process, which must still be read

    def knows(self, version: int) -> bool:
        """Return whether every change up to this version is known.

        False for a version below the last one that was read: the log went back to an earlier state.
        """
        return self._read <= version <= self._known

    def made(self, version: int) -> None:
        """Record the version of a change by this process, which already applies here."""
        if version > self._known:
            self._made.add(version)
            self._advance()

    def read(self, version: int) -> None:
        """Record that every change up to this version has been read."""
        if not self.knows(version):
            self._known = version
            self._made = {made for made in self._made if made > version}
            self._advance()
        self._read = version

    def _advance(self) -> None:
        while self._known + 1 in self._made:
            self._known += 1
            self._made.remove(self._known)
