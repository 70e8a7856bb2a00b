//! The ways in which the mover may authenticate, as data.

use crate::words::listed;

/// One kind of credential.
#[derive(Debug)]
pub struct CredentialKind {
    pub name: &'static str,
    /// The fields that its secret must have.
    pub required: &'static [&'static str],
    /// The fields that its secret may have.
    pub optional: &'static [&'static str],
    pub way: SecretForm,
}

/// How a secret becomes keywords of libpq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretForm {
    /// By the connection string and by what the server's operating-system account has.
    Libpq,
    /// By the server's operating-system account, over a socket of its own machine.
    Peer,
    Password,
    Certificate,
    /// A password that is valid for a short time, and is sent as it is.
    Token(TokenSource),
}

/// The source of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenSource {
    File,
    Command,
    Gcp,
    Aws,
}

pub static KINDS: [CredentialKind; 8] = [
    CredentialKind { name: "libpq", required: &[], optional: &[], way: SecretForm::Libpq },
    CredentialKind { name: "peer", required: &[], optional: &[], way: SecretForm::Peer },
    CredentialKind {
        name: "password",
        required: &["password"],
        optional: &["username"],
        way: SecretForm::Password,
    },
    CredentialKind {
        name: "mtls_cert",
        required: &["certificate", "key"],
        optional: &["key_password", "username"],
        way: SecretForm::Certificate,
    },
    CredentialKind {
        name: "token_command",
        required: &["command"],
        optional: &[],
        way: SecretForm::Token(TokenSource::Command),
    },
    CredentialKind {
        name: "token_file",
        required: &["file"],
        optional: &[],
        way: SecretForm::Token(TokenSource::File),
    },
    CredentialKind {
        name: "gcp_workload_identity",
        required: &[],
        optional: &["account", "host"],
        way: SecretForm::Token(TokenSource::Gcp),
    },
    CredentialKind {
        name: "aws_iam",
        required: &["region"],
        optional: &["profile"],
        way: SecretForm::Token(TokenSource::Aws),
    },
];

pub fn by_name(name: &str) -> Option<&'static CredentialKind> {
    KINDS.iter().find(|kind| kind.name == name)
}

pub fn names() -> String {
    listed(KINDS.iter().map(|kind| kind.name))
}

impl CredentialKind {
    /// Whether it has a secret, which the keychain stores.
    pub fn has_secret(&self) -> bool {
        !matches!(self.way, SecretForm::Libpq | SecretForm::Peer)
    }

    /// Whether it reads a file or runs a command that the secret names, as the server's operating-system account.
    pub fn acts_as_server(&self) -> bool {
        matches!(self.way, SecretForm::Token(_))
    }
}
