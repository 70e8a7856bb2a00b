//! The parameters of a libpq connection: keywords, including secrets, and files that no other process sees.

use super::secret_file::SecretFile;
use zeroize::Zeroizing;

/// The least length of a secret that is removed from texts: a shorter one may occur by chance.
const SHORTEST: usize = 4;

/// The parameters as given to libpq, in their order: later ones override earlier ones. When they are dropped, their
/// values are wiped from memory, and the files are removed.
#[derive(Default)]
pub struct Params {
    list: Vec<(String, Zeroizing<String>)>,
    /// Files that libpq opens while it connects.
    files: Vec<SecretFile>,
}

impl Params {
    pub fn push(&mut self, keyword: &str, value: &str) {
        self.list.push((keyword.to_owned(), Zeroizing::new(value.to_owned())));
    }

    /// Adds a keyword whose value is the path of a file with this content.
    pub fn push_file(&mut self, keyword: &str, content: &str) -> std::io::Result<()> {
        let file = SecretFile::new(content.as_bytes())?;
        self.push(keyword, &file.path());
        self.files.push(file);
        Ok(())
    }

    /// Removes the last parameter.
    pub fn pop(&mut self) {
        self.list.pop();
    }

    /// Returns a text of the other side without the secrets that it was given: it may repeat them.
    pub fn conceal(&self, text: &str) -> String {
        let is_secret = |keyword: &str| matches!(keyword, "password" | "sslpassword");
        let secrets =
            self.list.iter().filter(|(keyword, value)| is_secret(keyword) && value.len() >= SHORTEST);
        let text = secrets.fold(text.to_owned(), |text, (_, value)| text.replace(value.as_str(), "***"));
        without_file(&text)
    }

    /// Returns the parameters with more after them, for libpq.
    pub(super) fn with<'a>(&'a self, more: &'a [(&'static str, String)]) -> Vec<(&'a str, &'a str)> {
        let own = self.list.iter().map(|(keyword, value)| (keyword.as_str(), value.as_str()));
        own.chain(more.iter().map(|(keyword, value)| (*keyword, value.as_str()))).collect()
    }
}

/// Removes the file that libpq has read a password from, since users who may look at a split must not see it.
fn without_file(text: &str) -> String {
    const BEFORE: &str = "password retrieved from file \"";
    let Some((before, behind)) = text.split_once(BEFORE) else { return text.to_owned() };
    let behind = behind.split_once('"').map_or("", |(_, behind)| behind);
    format!("{before}password retrieved from a file{}", without_file(behind))
}

#[cfg(test)]
mod tests {
    use super::Params;

    #[test]
    fn files_of_passwords_are_not_named() {
        let said = "FATAL:  no\npassword retrieved from file \"/root/.pgpass\"\nagain: password retrieved from file \"/x";
        let shown = "FATAL:  no\npassword retrieved from a file\nagain: password retrieved from a file";
        assert_eq!(Params::default().conceal(said), shown);
        assert_eq!(Params::default().conceal("refused"), "refused");
    }
}
