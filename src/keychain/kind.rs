//! The ways in which the mover may prove who it is, as data.

/// One of them.
#[derive(Debug)]
pub struct CredentialKind {
    pub name: &'static str,
    /// Fields that its secret must have.
    pub required: &'static [&'static str],
    /// Those that it may have.
    pub optional: &'static [&'static str],
    pub way: SecretForm,
}

/// How a secret becomes keywords of libpq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SecretForm {
    /// By what the connection string and the account of the server have.
    Libpq,
    /// By the account of the server, over a socket of its own machine.
    Peer,
    Password,
    Certificate,
    /// A password that lives shortly, and is sent as it is.
    Token(TokenSource),
}

/// Where a token comes from.
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
    KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

impl CredentialKind {
    /// Whether it has a secret, which the keychain keeps.
    pub fn has_secret(&self) -> bool {
        !matches!(self.way, SecretForm::Libpq | SecretForm::Peer)
    }

    /// Whether it reads or runs, as the account of the server, what the secret names.
    pub fn acts_as_server(&self) -> bool {
        matches!(self.way, SecretForm::Token(_))
    }
}
