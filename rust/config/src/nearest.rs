//! The word that was probably meant.

/// No longer word is compared: it is no misspelt one.
const LONGEST_GUESSED: usize = 32;
/// The least likeness of a misspelt word.
const LIKE: f64 = 0.6;

/// Returns the nearest of some words to `word`, if it is near enough to be meant.
pub(crate) fn nearest_word<'a>(
    word: &str,
    words: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    if word.len() > LONGEST_GUESSED {
        return None;
    }
    let word = word.to_ascii_lowercase();
    let rated = words.into_iter().map(|it| {
        let likeness = strsim::normalized_damerau_levenshtein(&it.to_ascii_lowercase(), &word);
        (likeness, it)
    });
    let (likeness, nearest) = rated.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (likeness >= LIKE).then_some(nearest)
}
