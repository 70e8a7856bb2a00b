//! The agent's SQL with names filled in. What is filled in may come from somebody who would
//! like to write code for the mover: names of columns, of shards, keys.

/// The quotes of functions' bodies in templates.
const QUOTE: &str = "$agent$";

/// Fills a template in one pass: what is filled in is not looked at again, and braces around
/// anything else stay. The quotes of functions become ones that nothing in the text closes.
pub fn fill(template: &str, values: &[(&str, String)]) -> String {
    let quotes = template.matches(QUOTE).count();
    let mut number = 0;
    loop {
        let quote = if number == 0 { QUOTE.to_owned() } else { format!("$agent{number}$") };
        let filled = fill_once(&template.replace(QUOTE, &quote), values);
        if filled.matches(&quote).count() == quotes {
            return filled;
        }
        number += 1;
    }
}

fn fill_once(template: &str, values: &[(&str, String)]) -> String {
    let mut filled = String::with_capacity(template.len());
    let mut rest = template;
    while let Some((before, from)) = rest.split_once('{') {
        filled.push_str(before);
        let known = values.iter().find_map(|(name, value)| {
            let after = from.strip_prefix(*name)?.strip_prefix('}')?;
            Some((value, after))
        });
        match known {
            Some((value, after)) => {
                filled.push_str(value);
                rest = after;
            }
            None => {
                filled.push('{');
                rest = from;
            }
        }
    }
    filled.push_str(rest);
    filled
}

#[cfg(test)]
mod tests {
    use super::fill;

    fn values(pairs: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
        pairs.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
    }

    #[test]
    fn what_is_filled_in_is_not_filled() {
        let filled = fill("{a} {b} {c} '{}' {a}", &values(&[("a", "{b}"), ("b", "{a}")]));
        assert_eq!(filled, "{b} {a} {c} '{}' {b}");
    }

    #[test]
    fn no_name_closes_a_function() {
        let body = "AS $agent$ {name} $agent$";
        assert_eq!(fill(body, &values(&[("name", "x")])), "AS $agent$ x $agent$");
        assert_eq!(
            fill(body, &values(&[("name", "a$agent$ b $agent1$")])),
            "AS $agent2$ a$agent$ b $agent1$ $agent2$"
        );
        // Also where it is made of what stands around it.
        assert_eq!(fill("$agent$ $agen{t}$ $agent$", &values(&[("t", "t")])), "$agent1$ $agent$ $agent1$");
    }
}
