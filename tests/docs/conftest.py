from tests.servers.fixtures import hub  # noqa: F401
