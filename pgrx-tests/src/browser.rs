//! A real browser that opens a page without a window, and what it finds on the page.

use crate::process::Directory;
use crate::{Result, wait};
use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(120);
/// The script that inspects the page. The page is in a frame, because a browser has no window of 400 pixels.
const LOOKS: &str = include_str!("browser.js");

/// How a page is opened.
#[derive(Debug, Clone, Copy)]
pub struct View {
    /// The width in pixels.
    pub width: u32,
    pub is_dark: bool,
}

/// Findings as names and values. A name may occur several times.
#[derive(Debug)]
pub struct Findings(Vec<(String, String)>);

impl Findings {
    pub fn all(&self, name: &str) -> Vec<&str> {
        self.0.iter().filter(|(of, _)| of == name).map(|(_, value)| value.as_str()).collect()
    }
}

pub fn look(page: &str, view: View) -> Result<Findings> {
    let directory = Directory::new("browser")?;
    let file = directory.join("page.html");
    fs::write(&file, framed(page, view.width))?;
    let scheme = if view.is_dark { 0 } else { 1 };
    let output = directory.join("seen.html");
    let mut browser = Command::new("chromium")
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--hide-scrollbars",
            "--disable-dev-shm-usage",
            "--disable-extensions",
        ])
        .args([
            "--no-first-run",
            "--disable-background-networking",
            "--virtual-time-budget=10000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", directory.join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={scheme}"))
        .arg("--window-size=1500,1000")
        .arg(format!("file://{}", file.display()))
        .env("HOME", &*directory)
        .stdin(Stdio::null())
        .stdout(fs::File::create(&output)?)
        .stderr(fs::File::create(directory.join("log"))?)
        .spawn()
        .map_err(|error| format!("cannot run chromium: {error}"))?;
    let ended = wait::until("the browser to have looked", LIMIT, || Ok(browser.try_wait()?));
    if ended.is_err() {
        let _ = browser.kill();
        let _ = browser.wait();
    }
    let (status, seen) = (ended?, fs::read_to_string(&output)?);
    let found = seen.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let Some((found, _)) = found.filter(|(found, _)| found.contains("done\t")) else {
        let log = fs::read_to_string(directory.join("log"))?;
        return Err(format!("the browser has found nothing ({status}): {seen}\n{log}").into());
    };
    let plain = |text: &str| text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    let line = |line: &str| line.split_once('\t').map(|(name, value)| (name.to_owned(), plain(value)));
    Ok(Findings(found.lines().filter_map(line).collect()))
}

/// Puts the page into a frame of another page, which alone has a script.
fn framed(page: &str, width: u32) -> String {
    let inside = page.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<!DOCTYPE html><meta charset=\"utf-8\"><meta name=\"color-scheme\" content=\"light dark\">
         <iframe id=\"page\" style=\"border:0;width:{width}px;height:900px\" srcdoc=\"{inside}\"></iframe>
         <pre id=\"found\"></pre><script>{LOOKS}</script>"
    )
}
