//! The public key of a certificate, read without judging the certificate: a load goes to servers
//! whose certificates no browser would take (X.509 version 1, short keys), as wrk's does.

use rustls::pki_types::{CertificateDer, SignatureVerificationAlgorithm};

/// Tags of DER (X.690, 8.1.2).
const SEQUENCE: u8 = 0x30;
const INTEGER: u8 = 0x02;
const BIT_STRING: u8 = 0x03;
/// `[0]`, the version of a certificate that has one.
const VERSION: u8 = 0xa0;

/// The object identifier rsaEncryption with its absent parameters (RFC 3279, 2.3.1).
const RSA: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
/// Shortest RSA key that the cryptographic library takes.
const RSA_BITS_MIN: usize = 2048;

/// A public key as certificates hold it (RFC 5280, SubjectPublicKeyInfo).
pub(super) struct PublicKey<'a> {
    algorithm: &'a [u8],
    bits: &'a [u8],
}

impl<'a> PublicKey<'a> {
    /// The key of a certificate; nothing where the bytes are not one.
    pub fn of(certificate: &'a CertificateDer<'_>) -> Option<PublicKey<'a>> {
        let (certificate, _) = element(certificate, SEQUENCE)?;
        let (mut fields, _) = element(certificate, SEQUENCE)?;
        if fields.first() == Some(&VERSION) {
            fields = element(fields, VERSION)?.1;
        }
        // serial number; then algorithm, issuer, validity and subject
        fields = element(fields, INTEGER)?.1;
        for _ in 0..4 {
            fields = element(fields, SEQUENCE)?.1;
        }
        let (key, _) = element(fields, SEQUENCE)?;
        let (algorithm, key) = element(key, SEQUENCE)?;
        let (bits, _) = element(key, BIT_STRING)?;
        // the number of bits that are left over in the last byte
        let bits = bits.strip_prefix(&[0])?;
        Some(PublicKey { algorithm, bits })
    }

    /// Whether a signature is right; nothing where no algorithm at hand fits the key.
    pub fn verifies(
        &self,
        algorithms: &[&dyn SignatureVerificationAlgorithm],
        message: &[u8],
        signature: &[u8],
    ) -> Option<bool> {
        if self.algorithm == RSA && self.modulus_bits()? < RSA_BITS_MIN {
            return None;
        }
        let fits = |one: &&&dyn SignatureVerificationAlgorithm| {
            one.public_key_alg_id().as_ref() == self.algorithm
        };
        let mut known = algorithms.iter().filter(fits).peekable();
        known.peek()?;
        Some(known.any(|one| one.verify_signature(self.bits, message, signature).is_ok()))
    }

    fn modulus_bits(&self) -> Option<usize> {
        let (key, _) = element(self.bits, SEQUENCE)?;
        let (modulus, _) = element(key, INTEGER)?;
        let first = modulus.iter().position(|byte| *byte != 0)?;
        let significant = &modulus[first..];
        Some(significant.len() * 8 - significant[0].leading_zeros() as usize)
    }
}

/// The content of the element that `input` begins with, if it has this tag, and what follows it.
fn element(input: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (&[own, first], mut rest) = input.split_first_chunk::<2>()?;
    let mut length = usize::from(first);
    if first >= 0x80 {
        // the long form: so many bytes of length (X.690, 8.1.3.5)
        let bytes = usize::from(first & 0x7f);
        if !(1..=4).contains(&bytes) || rest.len() < bytes {
            return None;
        }
        let (long, after) = rest.split_at(bytes);
        length = long
            .iter()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte));
        rest = after;
    }
    (own == tag && length <= rest.len()).then(|| rest.split_at(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_without_a_certificate_have_no_key() {
        for bytes in [
            &b""[..],
            b"\x30",
            b"\x30\x84\xff\xff\xff\xff",
            b"\x30\x80\x00\x00",
        ] {
            assert!(PublicKey::of(&CertificateDer::from(bytes)).is_none());
        }
    }

    #[test]
    fn lengths_are_read_in_both_forms() {
        assert_eq!(
            element(b"\x02\x01\x07rest", INTEGER),
            Some((&b"\x07"[..], &b"rest"[..]))
        );
        let long = [&b"\x30\x81\x80"[..], &[9; 128], b"x"].concat();
        assert_eq!(element(&long, SEQUENCE), Some((&[9; 128][..], &b"x"[..])));
        assert_eq!(element(b"\x02\x02\x07", INTEGER), None);
        assert_eq!(element(b"\x02\x01\x07", SEQUENCE), None);
    }

    #[test]
    fn a_short_rsa_key_is_left_unchecked() {
        let modulus = [&b"\x02\x81\x81\x00"[..], &[0xff; 128], b"\x02\x01\x03"].concat();
        let bits = [&b"\x30\x81\x87"[..], &modulus].concat();
        let key = PublicKey {
            algorithm: RSA,
            bits: &bits,
        };
        assert_eq!(key.modulus_bits(), Some(1024));
        assert_eq!(key.verifies(&[], b"", b""), None);
    }
}
