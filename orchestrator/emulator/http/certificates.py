"""Make certificates for Google's storage hosts, which only this computer's local machines trust."""

import datetime as dt
import os
import ssl
from dataclasses import dataclass
from pathlib import Path

import certifi
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from orchestrator.private_folders import private_file, private_folder

STORAGE_HOSTS = ("storage.googleapis.com", "www.googleapis.com")
DOMAIN = "googleapis.com"
VALID = dt.timedelta(days=3650)
RENEW = dt.timedelta(days=30)
OWN_BUNDLES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")


@dataclass(frozen=True)
class Certificates:
    """
    The certificate of a temporary authority, and the file with the hosts' certificate and key.

    The authority's key is never stored; it signs once, for names below googleapis.com only.
    """

    authority: bytes
    served: Path

    def bundle(self) -> bytes:
        """
        Return the certificates that machines trust, as PEM: this computer's authorities and the temporary one.

        CURL_CA_BUNDLE names the file, which requests and pip obey too, so it needs the others.
        """
        return b"\n".join([_public_authorities().rstrip(b"\n"), self.authority])

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(self.served)
        return context


def certificates(folder: Path) -> Certificates:
    """Return the certificates in *folder*; create them if missing, unreadable or about to expire."""
    authority, served = folder / "authority.pem", folder / "storage-hosts.pem"
    if not (_lasts(authority) and _lasts(served)):
        private_folder(folder)
        ours, theirs = _make()
        # In this order: once the second file exists, both belong together.
        served.unlink(missing_ok=True)
        private_file(authority, ours)
        private_file(served, theirs)
    return Certificates(authority.read_bytes(), served)


def _lasts(path: Path) -> bool:
    try:
        end = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return False
    return end - _now() > RENEW


def _make() -> tuple[bytes, bytes]:
    """Return the authority's certificate, and the hosts' certificate with its key."""
    signer, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = _named("tpuctl local cloud, for rehearsals only")
    limits = x509.NameConstraints([x509.DNSName(DOMAIN)], None)
    root = _certificate(issuer, issuer, signer, signer, authority=True, extra=(limits, True))
    names = x509.SubjectAlternativeName([x509.DNSName(host) for host in STORAGE_HOSTS])
    leaf = _certificate(_named(STORAGE_HOSTS[0]), issuer, key, signer, authority=False, extra=(names, False))
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return root, leaf + secret


def _certificate(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    *,
    authority: bool,
    extra: tuple[x509.ExtensionType, bool],
) -> bytes:
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=authority, crl_sign=authority, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
        decipher_only=False,
    )  # fmt: skip
    basic = x509.BasicConstraints(ca=authority, path_length=0 if authority else None)
    identity = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_now() - dt.timedelta(days=1))
        .not_valid_after(_now() + VALID)
        .add_extension(basic, critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(identity, critical=False)
        .add_extension(extra[0], critical=extra[1])
        .sign(signer, hashes.SHA256())
    )
    return made.public_bytes(serialization.Encoding.PEM)


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _public_authorities() -> bytes:
    """Return this computer's authorities: named by a variable, the system's, else certifi's."""
    named = [os.environ.get(name) for name in OWN_BUNDLES]
    for path in (*named, ssl.get_default_verify_paths().cafile):
        if path and Path(path).is_file():
            return Path(path).read_bytes()
    return Path(certifi.where()).read_bytes()


def _now() -> dt.datetime:
    return dt.datetime.now(dt.timezone.utc)
