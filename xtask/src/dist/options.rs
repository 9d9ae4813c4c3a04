//! The command line of `xtask dist`.

use std::path::PathBuf;

/// The options of `xtask dist`.
#[derive(Debug, PartialEq)]
pub(super) struct Options {
    /// The target triple, if it differs from the host.
    pub(super) target: Option<String>,
    pub(super) profile: String,
    /// An existing program to package.
    pub(super) binary: Option<PathBuf>,
    /// The folder of the packages. Its earlier content is removed.
    pub(super) out: PathBuf,
}

impl Options {
    pub(super) fn parse(arguments: &[&str]) -> Result<Self, String> {
        let mut options = Options {
            target: None,
            profile: "dist".to_owned(),
            binary: None,
            out: super::default_out(),
        };
        let mut words = arguments.iter();
        while let Some(&option) = words.next() {
            let mut value = || {
                words
                    .next()
                    .map(|&word| word.to_owned())
                    .ok_or(format!("{option} needs a value"))
            };
            match option {
                "--target" => options.target = Some(value()?),
                "--profile" => options.profile = value()?,
                "--binary" => options.binary = Some(value()?.into()),
                "--out" => options.out = value()?.into(),
                _ => return Err(format!("unknown option: {option}")),
            }
        }
        Ok(options)
    }

    /// Arguments of a cargo build. maturin gets the same ones, so that it reuses the built program.
    pub(super) fn build_arguments(&self) -> Vec<String> {
        let fixed = ["--locked", "--profile", &self.profile].map(str::to_owned);
        let target = self
            .target
            .iter()
            .flat_map(|target| ["--target".to_owned(), target.clone()]);
        fixed.into_iter().chain(target).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_have_values() {
        let options = Options::parse(&["--target", "t", "--out", "o", "--binary", "b"]).unwrap();
        assert_eq!(options.target.as_deref(), Some("t"));
        assert_eq!((options.out, options.binary), ("o".into(), Some("b".into())));
        assert_eq!(options.profile, "dist");
    }

    #[test]
    fn wrong_options_are_refused() {
        assert!(Options::parse(&["--target"]).is_err());
        assert!(Options::parse(&["--static"]).is_err());
    }

    #[test]
    fn build_uses_profile_and_target() {
        let options = Options::parse(&["--target", "t", "--profile", "release"]).unwrap();
        let arguments = options.build_arguments().join(" ");
        assert!(
            arguments.contains("--profile release") && arguments.ends_with("--target t"),
            "{arguments}"
        );
    }
}
