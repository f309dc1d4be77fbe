"""Hosts that a command of the user's reaches, as `docker exec` and `kubectl exec` do."""

from __future__ import annotations

from wirespeed.errors import InputError
from wirespeed.fleet.channel import Transport
from wirespeed.recipe.model import Site
from wirespeed.site.ssh import Ssh
from wirespeed.template import BadTemplateError, arguments_of


class Exec(Ssh):
    """One command for each host: it starts the agent's Python there, and carries its pipes."""

    def transport(self, site: Site, host: str) -> Transport:
        if not site.command:
            raise InputError(
                'the site has no command (write command = ["docker", "exec", "-i", "{{ host }}"])'
            )
        if not site.server.addr:
            raise InputError(
                "the site's server has no address (write the one that its load hosts reach it by "
                'as server = { host = "…", addr = "…" })'
            )
        try:
            words = arguments_of(site.command, {"host": host})
        except BadTemplateError as error:
            raise InputError(f"the site's command: {error}") from None
        return Transport(host, tuple(words), site.python, lease_s=site.lease, shares_files=False)
