//! The ways in which the mover may prove who it is, as data.

/// One of them.
#[derive(Debug)]
pub struct Kind {
    pub name: &'static str,
    /// Fields that its secret must have.
    pub required: &'static [&'static str],
    /// Those that it may have.
    pub optional: &'static [&'static str],
    pub way: Way,
}

/// How a secret becomes keywords of libpq.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By what the connection string and the account of the server have.
    Libpq,
    /// By the account of the server, over a socket of its own machine.
    Peer,
    Password,
    Certificate,
    /// A password that lives shortly, and is sent as it is.
    Token(Token),
}

/// Where a token comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Token {
    File,
    Command,
    Gcp,
    Aws,
}

pub static KINDS: [Kind; 8] = [
    Kind { name: "libpq", required: &[], optional: &[], way: Way::Libpq },
    Kind { name: "peer", required: &[], optional: &[], way: Way::Peer },
    Kind { name: "password", required: &["password"], optional: &["username"], way: Way::Password },
    Kind {
        name: "mtls_cert",
        required: &["certificate", "key"],
        optional: &["key_password", "username"],
        way: Way::Certificate,
    },
    Kind { name: "token_command", required: &["command"], optional: &[], way: Way::Token(Token::Command) },
    Kind { name: "token_file", required: &["file"], optional: &[], way: Way::Token(Token::File) },
    Kind {
        name: "gcp_workload_identity",
        required: &[],
        optional: &["account", "host"],
        way: Way::Token(Token::Gcp),
    },
    Kind { name: "aws_iam", required: &["region"], optional: &["profile"], way: Way::Token(Token::Aws) },
];

pub fn by_name(name: &str) -> Option<&'static Kind> {
    KINDS.iter().find(|kind| kind.name == name)
}

pub fn names() -> String {
    KINDS.iter().map(|kind| kind.name).collect::<Vec<_>>().join(", ")
}

impl Kind {
    /// Whether it has a secret, which the keychain keeps.
    pub fn has_secret(&self) -> bool {
        !matches!(self.way, Way::Libpq | Way::Peer)
    }

    /// Whether it reads or runs, as the account of the server, what the secret names.
    pub fn acts_as_server(&self) -> bool {
        matches!(self.way, Way::Token(_))
    }
}
