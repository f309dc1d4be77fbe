//! What TLS offers and accepts. Without options nothing is verified, as with wrk: this is a load, not
//! a visit.

use super::certificate::PublicKey;
use crate::plan::TlsOptions;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{ring, CryptoProvider};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::version::{TLS12, TLS13};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    SupportedProtocolVersion,
};
use std::path::Path;
use std::sync::Arc;

/// Sessions that are kept for resumption: one for each target suffices.
const SESSIONS: usize = 1024;

/// Why TLS cannot be spoken as the options say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsFault {
    /// An option that cannot be met.
    Option {
        /// Its name.
        option: &'static str,
        /// The reason.
        why: String,
    },
    /// A server whose name no handshake can have.
    Name {
        /// Its URL.
        url: String,
    },
}

fn fault(option: &'static str, why: String) -> TlsFault {
    TlsFault::Option { option, why }
}

/// The configuration that the options ask for, or the option that cannot be met.
pub(crate) fn configuration(options: &TlsOptions) -> Result<ClientConfig, TlsFault> {
    let provider = Arc::new(provider(options)?);
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_protocol_versions(&versions(options)?)
        .map_err(|error| fault("tls-version", format!("{error}; do the cipher suites fit?")))?;
    let builder = match &options.authorities {
        Some(file) => builder
            .dangerous()
            .with_custom_certificate_verifier(verifier(file, provider)?),
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider))),
    };
    let mut config = match &options.identity {
        Some((certificates, key)) => {
            let (chain, key) = (chain(certificates, "cert")?, private_key(key)?);
            let with = builder.with_client_auth_cert(chain, key);
            with.map_err(|error| fault("cert", format!("{}: {error}", certificates.display())))?
        }
        None => builder.with_no_client_auth(),
    };
    config.resumption = if options.resumes {
        Resumption::in_memory_sessions(SESSIONS)
    } else {
        Resumption::disabled()
    };
    config.enable_early_data = options.early_data;
    Ok(config)
}

fn provider(options: &TlsOptions) -> Result<CryptoProvider, TlsFault> {
    let mut provider = ring::default_provider();
    provider.cipher_suites = chosen(
        "tls-ciphers",
        &options.ciphers,
        provider.cipher_suites,
        |one| one.suite().as_str().unwrap_or_default().to_string(),
    )?;
    provider.kx_groups = chosen("tls-groups", &options.groups, provider.kx_groups, |one| {
        format!("{:?}", one.name())
    })?;
    Ok(provider)
}

/// The known ones that were named, in their order; all if none was.
fn chosen<T: Copy>(
    option: &'static str,
    names: &[String],
    known: Vec<T>,
    name_of: impl Fn(T) -> String,
) -> Result<Vec<T>, TlsFault> {
    if names.is_empty() {
        return Ok(known);
    }
    let each = names.iter().map(|name| {
        let same = |one: &&T| name_of(**one).eq_ignore_ascii_case(name);
        known.iter().find(same).copied().ok_or_else(|| {
            let all: Vec<String> = known.iter().map(|one| name_of(*one)).collect();
            fault(
                option,
                format!("unknown '{name}'; there are {}", all.join(", ")),
            )
        })
    });
    each.collect()
}

fn versions(options: &TlsOptions) -> Result<Vec<&'static SupportedProtocolVersion>, TlsFault> {
    if options.versions.is_empty() {
        return Ok(vec![&TLS12, &TLS13]);
    }
    let each = options
        .versions
        .iter()
        .map(|version| match version.as_str() {
            "1.2" => Ok(&TLS12),
            "1.3" => Ok(&TLS13),
            other => Err(fault(
                "tls-version",
                format!("unknown '{other}'; there are 1.2, 1.3"),
            )),
        });
    each.collect()
}

fn verifier(
    file: &Path,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<WebPkiServerVerifier>, TlsFault> {
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(chain(file, "ca")?);
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
        .build()
        .map_err(|error| fault("ca", format!("{}: {error}", file.display())))
}

/// The certificates of a PEM file.
fn chain(file: &Path, option: &'static str) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
    let fault = |why: String| fault(option, format!("cannot read {}: {why}", file.display()));
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect);
    let read: Vec<_> = read.map_err(|error| fault(error.to_string()))?;
    if read.is_empty() {
        return Err(fault("it holds no certificate (PEM)".to_string()));
    }
    Ok(read)
}

fn private_key(file: &Path) -> Result<PrivateKeyDer<'static>, TlsFault> {
    PrivateKeyDer::from_pem_file(file)
        .map_err(|error| fault("key", format!("cannot read {}: {error}", file.display())))
}

/// Takes every certificate; signatures are still checked, so that their cost is real, unless the
/// key is one that the cryptographic library does not take.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl Anyone {
    fn check(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let schemes = self.0.signature_verification_algorithms.mapping;
        let known = schemes
            .iter()
            .find(|(scheme, _)| *scheme == signature.scheme);
        let algorithms = known.map_or(&[][..], |(_, algorithms)| algorithms);
        let key = PublicKey::of(certificate);
        let verified = key.and_then(|key| key.verifies(algorithms, message, signature.signature()));
        if verified == Some(false) {
            return Err(CertificateError::BadSignature.into());
        }
        Ok(HandshakeSignatureValid::assertion())
    }
}

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.check(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
