# Copyright: the baremetal.dgx authors
# SPDX-License-Identifier: GPL-3.0-or-later
"""When a certificate ends, compared with the date that it was made with."""

from __future__ import annotations

import datetime
import random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ansible_collections.baremetal.dgx.plugins.filter.certificate_end import certificate_end
from ansible_collections.baremetal.dgx.plugins.plugin_utils._monitoring.certificate import ends_at

KEY = ec.generate_private_key(ec.SECP256R1())


def certificate(end: datetime.datetime, name: str = "head-01") -> str:
    """Return a certificate in PEM that ends then."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(KEY.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(1950, 1, 1))
        .not_valid_after(end)
        .sign(KEY, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM).decode()


def seconds(end: datetime.datetime) -> int:
    return int(end.replace(tzinfo=datetime.timezone.utc).timestamp())


@pytest.mark.parametrize(
    "end",
    [
        datetime.datetime(1951, 2, 3),
        datetime.datetime(1969, 12, 31, 23, 59, 59),
        datetime.datetime(2026, 11, 27, 12, 34, 56),
        # the last second that is written with two digits of the year, and the first with four
        datetime.datetime(2049, 12, 31, 23, 59, 59),
        datetime.datetime(2050, 1, 1),
        datetime.datetime(9999, 12, 31, 23, 59, 59),
    ],
)
def test_the_end_is_what_the_certificate_says(end: datetime.datetime) -> None:
    # a long name: its length needs more than one byte
    for name in ("a", 64 * "b"):
        assert ends_at(certificate(end, name)) == seconds(end)


def test_of_a_chain_the_server_s_own_counts() -> None:
    own, authority = datetime.datetime(2030, 1, 1), datetime.datetime(2027, 1, 1)
    text = f"subject=/CN=head-01\n{certificate(own)}\n{certificate(authority)}"
    assert ends_at(text) == seconds(own)
    assert certificate_end(text.replace("\n", "\r\n")) == seconds(own)


def test_a_text_without_a_certificate_has_no_end() -> None:
    good = certificate(datetime.datetime(2030, 1, 1))
    body = "".join(good.split("-----")[2].split())
    key = KEY.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
    wrapped = "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----".format
    bad = ["", "CERTIFICATE", key, wrapped(""), wrapped("%%%"), wrapped("MAA="), wrapped("MIME")]
    bad += [wrapped(body[:length]) for length in range(4, len(body) - 4, 4)]
    for text in bad:
        assert certificate_end(text) == 0, text
        with pytest.raises(ValueError, match="certificate"):
            ends_at(text)


def test_damaged_bytes_raise_nothing_else() -> None:
    dice = random.Random(7)
    good = certificate(datetime.datetime(2030, 1, 1))
    lines = good.splitlines()
    for _trial in range(2000):
        row = dice.randrange(1, 4)
        at = dice.randrange(len(lines[row]))
        other = dice.choice("ABCDEFGHabcdefgh0189+/")
        damaged = [*lines]
        damaged[row] = lines[row][:at] + other + lines[row][at + 1 :]
        assert isinstance(certificate_end("\n".join(damaged)), int)
