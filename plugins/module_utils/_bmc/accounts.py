# Copyright: the baremetal.dgx authors
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
#
# PRIVATE to the collection: it may change at any time. Do not use it from elsewhere.
"""Accounts on a BMC over Redfish. No password can be read: the right one is that which works."""

from __future__ import annotations

import contextlib
from typing import Any, Callable, ContextManager, Iterator, Mapping, Sequence

from .redfish import BmcError, CredentialsError, LackError, RefusedError, Session, link
from .settings import Found

# user, password, and whether the password may have to be replaced at once → a session.
Login = Callable[..., ContextManager[Session]]


class RotationError(RefusedError):
    """A new password was not taken, in words that say which one is in force."""


@contextlib.contextmanager
def own_session(
    login: Login, bmc: Mapping[str, Any], writes: bool
) -> Iterator[tuple[Session, Found]]:
    """Yield a session with the declared password; where the BMC has the former one, it is replaced.

    The former session stays open until the new password has been tried, so that it can put the
    former password back. CredentialsError if neither is right, RotationError.
    """
    user, password, former = bmc["user"], bmc["password"], bmc["former_password"]
    with contextlib.ExitStack() as stack:
        try:
            opened = stack.enter_context(login(user, password))
        except CredentialsError:
            if not former:
                raise
        else:
            yield opened, Found()
            return
        old = stack.enter_context(login(user, former, renews=True))
        if not writes:
            yield old, Found((f"{user}: has its former password",))
            return
        # A BMC that wants another password first shows the own account alone.
        path = old.own_account or str(_of_user(old, user)["@odata.id"])
        try:
            _set(old, path, {"Password": password}, password)
        except RefusedError as error:
            raise RotationError(f"{user}: {error}") from None
        try:
            opened = stack.enter_context(login(user, password))
        except CredentialsError as error:
            back = _put_back(old, login, path, bmc)
            raise RotationError(
                f"{user}: the BMC took the new password and refuses it; {back}"
            ) from error
        except BmcError as error:
            raise BmcError(
                f"{user}: the password is replaced, and the new one could not be tried: {error}"
            ) from error
        yield opened, Found(changed=True)


def _put_back(old: Session, login: Login, path: str, bmc: Mapping[str, Any]) -> str:
    """Restore the former password by the former session, try it, and return what is in force."""
    try:
        _set(old, path, {"Password": bmc["former_password"]}, bmc["former_password"])
        with login(bmc["user"], bmc["former_password"], renews=True):
            return "the former one is in force again"
    except BmcError as error:
        return f"the former one could not be restored: {error}"


def bring_accounts(
    opened: Session, login: Login, wanted: Sequence[Mapping[str, Any]], writes: bool, own: Found
) -> Found:
    """Make, change and remove the declared accounts; others stay. `own` is of the own account."""
    wrong, changed = list(own.wrong), own.changed
    for one in wanted:
        try:
            what = _account(opened, login, one, writes)
            changed = changed or bool(what and writes)
            is_right = not what or (writes and not _account(opened, login, one, False))
        except LackError:
            raise
        except RefusedError as error:
            what, is_right = str(error), False
        if not is_right:
            wrong.append(f"{one['user']}: {what}")
    return Found(tuple(wrong), (), changed)


def _account(opened: Session, login: Login, wanted: Mapping[str, Any], writes: bool) -> str:
    """Return what differs; with `writes` it is changed."""
    user = wanted["user"]
    known = _of_user(opened, user, True)
    if wanted["state"] == "absent":
        if known and writes:
            _remove(opened, known["@odata.id"])
        return "is there" if known else ""
    role, password = wanted["role"], wanted["password"]
    if not known:
        if writes:
            body = {"UserName": user, "Password": password, "RoleId": role, "Enabled": True}
            _make(opened, body, password)
        return "is missing"
    change: dict[str, Any] = {}
    if known.get("RoleId") != role:
        change["RoleId"] = role
    if known.get("Enabled") is False:
        change["Enabled"] = True
    # A login with a disabled account shows nothing.
    if "Enabled" in change or not _is_right(login, user, password):
        change["Password"] = password
    if change and writes:
        _set(opened, known["@odata.id"], change, password)
    return ", ".join(
        {"RoleId": f"has the role {known.get('RoleId')}", "Enabled": "is disabled",
         "Password": "has another password"}[key] for key in change
    )  # fmt: skip


def _make(opened: Session, body: Mapping[str, Any], password: str) -> None:
    """Make an account: in a free slot of a BMC that has slots, as iDRAC 9, else as a new member."""
    path = link(opened.linked(opened.root, "AccountService"), "Accounts")
    # The first slot is reserved.
    free = [
        one for one in opened.members(path) if one.get("UserName") == "" and one.get("Id") != "1"
    ]
    if free:
        _set(opened, free[0]["@odata.id"], body, password)
    else:
        opened.send("post", path, body, secret=password)


def _remove(opened: Session, path: str) -> None:
    """Remove an account; a slot, which cannot be removed, becomes free."""
    try:
        opened.send("delete", path, None)
    except RefusedError as error:
        if error.status != 405:
            raise
        _set(opened, path, {"Enabled": False, "UserName": ""}, "")


def _is_right(login: Login, user: str, password: str) -> bool:
    try:
        with login(user, password):
            return True
    except CredentialsError:
        return False


def _of_user(opened: Session, user: str, may_lack: bool = False) -> dict[str, Any]:
    path = link(opened.linked(opened.root, "AccountService"), "Accounts")
    for one in opened.members(path):
        if one.get("UserName") == user:
            return one
    if may_lack:
        return {}
    raise LackError(f"{path} has no account {user}")


def _set(opened: Session, path: str, change: Mapping[str, Any], secret: str) -> None:
    place = opened.get(path)
    opened.send("patch", path, change, {"If-Match": place.get("@odata.etag") or "*"}, secret)
