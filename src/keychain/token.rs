//! Tokens that are valid for a short time: from a file that somebody else renews, from a command, or from a cloud's
//! own programs.

use super::command::{self, CommandDeadline};
use super::kind::TokenSource;
use super::secret::Secret;
use super::{error, master_key, plain_file};
use crate::error::Failure;
use serde_json::Value;
use std::cell::RefCell;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use zeroize::Zeroizing;

/// A cloud's own programs take a second or two.
const COMMAND_TIME: Duration = Duration::from_secs(10);
/// Tokens of Google and Microsoft have some kilobytes.
const MOST_BYTES: usize = 64 << 10;
/// How long the output of a command is used again: tokens live for ten minutes and more, and a split opens several
/// sessions at once.
const FRESH: Duration = Duration::from_secs(60);

/// The account for which a token is valid.
pub struct Account<'a> {
    pub host: &'a str,
    pub port: &'a str,
    pub user: &'a str,
}

struct KeptToken {
    sealed: Vec<u8>,
    whose: [String; 3],
    token: Zeroizing<String>,
    since: Instant,
}

thread_local! {
    static KEPT: RefCell<Option<KeptToken>> = const { RefCell::new(None) };
}

/// Drops the kept token after it was refused, so that the next use asks for a new one.
pub fn forget() {
    KEPT.set(None);
}

/// Returns the token of a credential, which its encrypted form identifies.
pub fn of(
    token: TokenSource,
    secret: &Secret,
    sealed: &[u8],
    account: &Account<'_>,
    longest: CommandDeadline,
) -> Result<Zeroizing<String>, Failure> {
    let field = |name| secret.get(name).unwrap_or_default();
    if token == TokenSource::File {
        return one_line(&read_file(field("file"))?);
    }
    let whose = [account.host, account.port, account.user].map(str::to_owned);
    let kept = KEPT.with_borrow(|kept| {
        let fresh = kept.as_ref().filter(|kept| kept.since.elapsed() < FRESH);
        fresh.filter(|kept| kept.sealed == sealed && kept.whose == whose).map(|kept| kept.token.clone())
    });
    if let Some(token) = kept {
        return Ok(token);
    }
    let said = match token {
        TokenSource::Aws => run(aws(secret, account), "aws", longest)?,
        TokenSource::Gcp => access_token(&run(gcp(secret), "curl", longest)?)?,
        _ => run(shell(field("command"), account), "the command", longest)?,
    };
    let token = one_line(&said)?;
    KEPT.set(Some(KeptToken {
        sealed: sealed.to_owned(),
        whose,
        token: token.clone(),
        since: Instant::now(),
    }));
    Ok(token)
}

fn run(mut command: Command, name: &str, longest: CommandDeadline) -> Result<Zeroizing<Vec<u8>>, Failure> {
    // Commands of others need no access to the key of the whole keychain.
    command.env_remove(master_key::VARIABLE);
    command::output(command, longest.at_most(COMMAND_TIME), MOST_BYTES)
        .map_err(|problem| error::no_token(&format!("{name} {problem}")))
}

fn read_file(path: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let mut text = Zeroizing::new(Vec::with_capacity(MOST_BYTES + 1));
    let read = plain_file::open(Path::new(path))
        .and_then(|file| file.take(MOST_BYTES as u64 + 1).read_to_end(&mut text));
    match read {
        Ok(length) if length <= MOST_BYTES => Ok(text),
        Ok(_) => Err(error::no_token(&format!("file \"{path}\" has more than {MOST_BYTES} bytes"))),
        Err(error) => Err(error::no_token(&format!("file \"{path}\": {error}"))),
    }
}

fn one_line(text: &[u8]) -> Result<Zeroizing<String>, Failure> {
    let text = std::str::from_utf8(text).map(str::trim).unwrap_or_default();
    if text.is_empty() || text.contains(|c: char| c.is_control()) {
        return Err(error::no_token("it is empty, has several lines or is not text"));
    }
    Ok(Zeroizing::new(text.to_owned()))
}

fn shell(text: &str, account: &Account<'_>) -> Command {
    let mut command = Command::new("/bin/sh");
    command.args(["-c", text]);
    command.env("PGHOST", account.host).env("PGPORT", account.port).env("PGUSER", account.user);
    command
}

/// Returns the command for the account of the virtual machine, or of the pod, in which the server runs.
fn gcp(secret: &Secret) -> Command {
    let host = secret.get("host").unwrap_or("metadata.google.internal");
    let account = secret.get("account").unwrap_or("default");
    let mut command = Command::new("curl");
    command.args(["--silent", "--fail", "--max-time", "5", "--header", "Metadata-Flavor: Google", "--"]);
    command.arg(format!("http://{host}/computeMetadata/v1/instance/service-accounts/{account}/token"));
    command
}

fn access_token(answer: &[u8]) -> Result<Zeroizing<Vec<u8>>, Failure> {
    match serde_json::from_slice::<Value>(answer) {
        Ok(Value::Object(mut fields)) => match fields.remove("access_token") {
            Some(Value::String(token)) => Ok(Zeroizing::new(token.into_bytes())),
            _ => Err(error::no_token("the metadata server's answer has no access_token")),
        },
        _ => Err(error::no_token("the metadata server's answer is not a JSON object")),
    }
}

/// The program itself makes the token, with whatever credentials the machine has.
fn aws(secret: &Secret, account: &Account<'_>) -> Command {
    let mut command = Command::new("aws");
    command.args(["rds", "generate-db-auth-token", "--hostname", account.host, "--port", account.port]);
    command.args(["--username", account.user, "--region", secret.get("region").unwrap_or_default()]);
    if let Some(profile) = secret.get("profile") {
        command.args(["--profile", profile]);
    }
    command
}
