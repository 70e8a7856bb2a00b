//! Encryption: XChaCha20-Poly1305, with a nonce for each secret. The alias, the kind and the key's identifier are
//! authenticated with the secret, so that no row can replace another one.
//!
//! An encrypted secret consists of a byte for the form, 8 bytes that identify the key, a nonce of 24 bytes and the
//! ciphertext.

use super::error;
use crate::error::Failure;
use crate::words::hex;
use chacha20poly1305::aead::{Aead, KeyInit, Payload};
use chacha20poly1305::{Key, XChaCha20Poly1305, XNonce};
use pgrx::pg_sys;
use zeroize::Zeroizing;

const FORM: u8 = 1;
const ID_BYTES: usize = 8;
const NONCE_BYTES: usize = 24;
pub const KEY_BYTES: usize = 32;

pub struct MasterKey {
    id: [u8; ID_BYTES],
    cipher: XChaCha20Poly1305,
}

impl MasterKey {
    pub fn new(key: &Zeroizing<[u8; KEY_BYTES]>) -> Option<MasterKey> {
        let cipher = XChaCha20Poly1305::new(<&Key>::from(&**key));
        // The identifier distinguishes keys and reveals nothing of them: it is the tag of an empty message, under a
        // nonce that no secret has.
        let tag = cipher.encrypt(<&XNonce>::from(&[0; NONCE_BYTES]), Payload { msg: &[], aad: b"key id" });
        let id = *tag.ok()?.first_chunk()?;
        Some(MasterKey { id, cipher })
    }

    pub fn id(&self) -> String {
        hex(&self.id)
    }

    /// Encrypts with the given nonce, which has to be random.
    fn seal_with(&self, nonce: &[u8; NONCE_BYTES], alias: &str, kind: &str, plain: &[u8]) -> Option<Vec<u8>> {
        let aad = authenticated(&self.id, alias, kind);
        let text = self.cipher.encrypt(<&XNonce>::from(nonce), Payload { msg: plain, aad: &aad }).ok()?;
        Some([&[FORM], &self.id[..], nonce, &text].concat())
    }

    pub fn seal(&self, alias: &str, kind: &str, plain: &[u8]) -> Result<Vec<u8>, Failure> {
        let nonce = random().and_then(|nonce| self.seal_with(&nonce, alias, kind, plain));
        nonce.ok_or_else(|| error::cannot_be_encrypted(alias))
    }
}

fn random() -> Option<[u8; NONCE_BYTES]> {
    let mut bytes = [0; NONCE_BYTES];
    // SAFETY: the server fills the buffer of the given length.
    unsafe { pg_sys::pg_strong_random(bytes.as_mut_ptr().cast(), bytes.len()) }.then_some(bytes)
}

/// Returns the identifier of the key that has encrypted a secret.
pub fn key_id(sealed: &[u8]) -> String {
    hex(sealed.get(1..=ID_BYTES).unwrap_or_default())
}

/// Joins the parts, each with its length, so that different triples have different results.
fn authenticated(key: &[u8], alias: &str, kind: &str) -> Vec<u8> {
    let mut all = vec![FORM];
    for part in [key, alias.as_bytes(), kind.as_bytes()] {
        all.extend((part.len() as u64).to_be_bytes());
        all.extend(part);
    }
    all
}

/// Decrypts the secret with whichever of the keys it was encrypted with.
pub fn open(
    keys: &[MasterKey],
    alias: &str,
    kind: &str,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let changed = || error::changed(alias);
    let (form, rest) = sealed.split_first().ok_or_else(changed)?;
    let (id, rest) = rest.split_first_chunk::<ID_BYTES>().ok_or_else(changed)?;
    let (nonce, text) = rest.split_first_chunk::<NONCE_BYTES>().ok_or_else(changed)?;
    if *form != FORM {
        return Err(changed());
    }
    let key = keys.iter().find(|key| key.id == *id).ok_or_else(|| error::other_key(alias, &hex(id)))?;
    let aad = authenticated(id, alias, kind);
    let plain = key.cipher.decrypt(<&XNonce>::from(nonce), Payload { msg: text, aad: &aad });
    plain.map(Zeroizing::new).map_err(|_| changed())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> MasterKey {
        MasterKey::new(&Zeroizing::new([byte; KEY_BYTES])).unwrap()
    }

    #[test]
    fn a_secret_comes_back_with_its_key_for_its_alias_and_kind_alone() {
        let (ours, other) = (key(1), key(2));
        assert_ne!(ours.id(), other.id());
        let sealed = ours.seal_with(&[7; NONCE_BYTES], "north", "password", b"sEcret").unwrap();
        assert_eq!(key_id(&sealed), ours.id());
        let open = |keys: &[MasterKey], alias, kind, sealed: &[u8]| {
            super::open(keys, alias, kind, sealed).map(|plain| plain.to_vec()).map_err(|e| e.to_string())
        };
        assert_eq!(open(&[key(2), key(1)], "north", "password", &sealed).unwrap(), b"sEcret");
        assert!(open(&[key(2)], "north", "password", &sealed).unwrap_err().contains("is missing"));
        for (alias, kind) in [("south", "password"), ("north", "mtls_cert"), ("northp", "assword")] {
            assert!(open(&[key(1)], alias, kind, &sealed).unwrap_err().contains("changed"));
        }
    }

    #[test]
    fn no_byte_of_it_can_be_changed_or_left_out() {
        let sealed = key(1).seal_with(&[7; NONCE_BYTES], "north", "password", b"sEcret").unwrap();
        for at in 0..sealed.len() {
            let mut changed = sealed.clone();
            changed[at] ^= 1;
            assert!(open(&[key(1)], "north", "password", &changed).is_err(), "byte {at}");
            assert!(open(&[key(1)], "north", "password", &sealed[..at]).is_err(), "{at} bytes");
        }
    }
}
