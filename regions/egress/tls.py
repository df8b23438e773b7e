"""TLS to subscribers: verified, 1.2 or newer, HTTP/1.1 only, and nothing of it taken from the environment."""

import os
import ssl
from pathlib import Path

from fanout.model.problems import Invalid


def tls_context(ca_file: Path | None = None) -> ssl.SSLContext:
    """A context that verifies certificate and host name against ``ca_file``, or else the system's authorities.

    ``ssl.create_default_context`` would read SSL_CERT_FILE, SSL_CERT_DIR and SSLKEYLOGFILE: a delivery service must not
    change whom it trusts, nor write down its session keys, because of a variable. Raises ``Invalid`` naming ``ca_file``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # verifies certificate and host name
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if ca_file is not None:
        try:
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:  # ssl.SSLError is one
            why = f"{ca_file} cannot be read as certificates ({os.strerror(error.errno) if error.errno else 'not PEM'})"
            raise Invalid.field("ca_file", why, "give a PEM file with one or more authorities") from error
        return context
    built_in = ssl.get_default_verify_paths()
    if Path(built_in.openssl_cafile).is_file():
        context.load_verify_locations(cafile=built_in.openssl_cafile)
    if Path(built_in.openssl_capath).is_dir():
        context.load_verify_locations(capath=built_in.openssl_capath)
    return context
