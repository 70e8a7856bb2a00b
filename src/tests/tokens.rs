//! Tokens of commands, which are kept for a short time.

#[pgrx::pg_schema]
mod tests {
    use crate::keychain::command::CommandDeadline;
    use crate::keychain::kind::{self, TokenSource};
    use crate::keychain::secret::Secret;
    use crate::keychain::token::{self, Account};
    use pgrx::prelude::*;

    /// Returns the token of a command that prints the account for which it runs, and a new identifier for each run.
    fn token(sealed: &str, host: &str, port: &str, user: &str) -> String {
        let json = br#"{"command": "echo $PGHOST $PGPORT $PGUSER $(cat /proc/sys/kernel/random/uuid)"}"#;
        let secret = kind::by_name("token_command").and_then(|kind| Secret::of(kind, json).ok());
        let account = Account { host, port, user };
        let token = secret.and_then(|secret| {
            token::of(TokenSource::Command, &secret, sealed.as_bytes(), &account, CommandDeadline::default())
                .ok()
        });
        token.map(|token| token.to_string()).unwrap_or_default()
    }

    #[pg_test]
    fn a_kept_token_is_used_for_the_same_account_alone() {
        let first = token("a", "one", "1", "me");
        assert!(first.starts_with("one 1 me "), "{first}");
        assert_eq!(token("a", "one", "1", "me"), first);
        assert!(token("a", "two", "1", "me").starts_with("two 1 me "));
        assert!(token("a", "two", "2", "me").starts_with("two 2 me "));
        assert!(token("a", "two", "2", "you").starts_with("two 2 you "));
        let of_another = token("b", "two", "2", "you");
        assert_ne!(token("a", "two", "2", "you"), of_another);
        token::forget();
        assert_ne!(token("a", "one", "1", "me"), first);
    }
}
