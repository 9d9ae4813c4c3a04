//! The rows that are not due yet: `spec/not-yet.txt`.

use super::requirements::Requirement;
use std::collections::BTreeMap;

/// Ids, each with the reason for the delay.
#[derive(Debug, Default)]
pub(crate) struct NotYet(BTreeMap<String, String>);

impl NotYet {
    /// Reads sections: a line `# reason`, then lines of ids. `GW-*` stands for a whole family.
    pub(crate) fn read(text: &str, requirements: &[Requirement]) -> Result<Self, String> {
        let mut rows = BTreeMap::new();
        let mut reason = "";
        for line in text.lines() {
            if let Some(title) = line.strip_prefix('#') {
                reason = title.trim();
                continue;
            }
            for entry in line.split_whitespace() {
                let family = entry.strip_suffix('*');
                let fits = |id: &str| family.map_or(id == entry, |family| id.starts_with(family));
                let before = rows.len();
                let ids = requirements.iter().map(|row| &row.id).filter(|id| fits(id));
                rows.extend(ids.map(|id| (id.clone(), reason.to_owned())));
                if rows.len() == before {
                    return Err(format!("spec/not-yet.txt: {entry} is unknown or listed twice"));
                }
            }
        }
        Ok(NotYet(rows))
    }

    /// The reason why a row is not due. `None` if it is due.
    pub(crate) fn reason(&self, id: &str) -> Option<&str> {
        self.0.get(id).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_sections_and_families() {
        let list = "- **GW-01** [all · MUST] a\n- **GW-02** [all · MUST] b\n- **SEC-03** [all · MUST] c";
        let rows = Requirement::read_all(list).unwrap();
        let not_yet = NotYet::read("# the gateway\nGW-*\n\n# authorization\nSEC-03\n", &rows).unwrap();
        assert_eq!(not_yet.reason("GW-02"), Some("the gateway"));
        assert_eq!(not_yet.reason("SEC-03"), Some("authorization"));
        assert_eq!(not_yet.reason("SEC-04"), None);
        assert!(NotYet::read("# x\nSEC-04\n", &rows).is_err());
        assert!(NotYet::read("# x\nSEC-03 SEC-03\n", &rows).is_err());
    }
}
