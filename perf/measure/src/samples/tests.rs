use super::*;

const TEXT: &str = "\
# ========
# captured on    : Sat Nov 21 15:07:19 2026
# ========
#
tun-writer 31269/31272 12402.007309:     100000 cpu-clock: 
\tffffffff8172f2cc ep_item_poll.isra.0+0x3c ([kernel.kallsyms])
\t          2cee7b <a::B as c::D<[u8; 4]>>::e (f)+0xdb (/usr/bin/convoy)
\t               0 [unknown] ([unknown])

my thread 5 7/8 [001] 12403.5:     100000 cpu-clock:u: 

";

#[test]
fn threads_events_and_frames_are_read() {
    let samples = read(TEXT).unwrap();
    let [first, second] = &samples[..] else {
        panic!("{samples:?}");
    };
    assert_eq!(first.thread, "tun-writer");
    assert_eq!((first.pid, first.tid), (31_269, 31_272));
    assert_eq!(first.event, "cpu-clock");
    let functions: Vec<_> = first.frames.iter().map(|f| f.function.as_str()).collect();
    let generic = "<a::B as c::D<[u8; 4]>>::e (f)";
    assert_eq!(functions, ["ep_item_poll.isra.0", generic, "[unknown]"]);
    assert_eq!(first.frames[0].module, "[kernel.kallsyms]");
    assert_eq!(second.thread, "my thread 5");
    assert!(second.frames.is_empty());
}

#[test]
fn a_text_that_is_cut_anywhere_is_an_error_unless_it_ends_between_two_samples() {
    let whole = TEXT.find("\n\n").unwrap() + 2;
    for end in 0..TEXT.len() {
        let outcome = read(&TEXT[..end]);
        if end == whole {
            assert_eq!(outcome.unwrap().len(), 1);
            continue;
        }
        let lines = TEXT[..end].lines().count();
        let error = outcome.unwrap_err().to_string();
        assert!(
            error.starts_with(&format!("line {lines}: the text ends")),
            "{end}: {error}"
        );
    }
}

#[test]
fn a_line_that_does_not_belong_is_named_wherever_it_is() {
    let foreign = "[ perf record: Woken up 3 times to write data ]";
    let lines: Vec<_> = TEXT.lines().collect();
    for place in 0..=lines.len() {
        let mut lines = lines.clone();
        lines.insert(place, foreign);
        let error = read(&(lines.join("\n") + "\n")).unwrap_err().to_string();
        let named = error.starts_with(&format!("line {}: this is no ", place + 1));
        assert!(named && error.contains("Woken up"), "{place}: {error}");
    }
}

#[test]
fn a_text_without_processes_says_how_to_record_it() {
    let error = read("tunnel 12 1.5: 100 cycles: \n\n")
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("line 1: no process (fix: `perf script -F +pid`)"),
        "{error}"
    );
}

#[test]
fn a_second_event_is_an_error_and_another_kind_of_core_is_none() {
    let sample = |event: &str| format!("tunnel 1/2 1.5: 100 {event}: \n\n");
    let hybrid = sample("cpu_core/cycles/P") + &sample("cpu_atom/cycles/P") + &sample("cycles:u");
    assert_eq!(read(&hybrid).unwrap().len(), 3);
    let error = read(&(hybrid + &sample("cpu-clock"))).unwrap_err();
    assert!(
        error.to_string().starts_with("line 7: a second event"),
        "{error}"
    );
}

#[test]
fn bytes_that_are_no_text_are_an_error_with_their_line() {
    let bytes = [TEXT.as_bytes(), b"\xff\xfe\n"].concat();
    let error = Samples::new(&bytes[..]).collect::<Result<Vec<_>, _>>();
    let error = error.unwrap_err().to_string();
    assert!(error.starts_with("line 12: no text in UTF-8"), "{error}");
}

#[test]
fn a_text_without_samples_is_an_error() {
    for text in ["", "# ========\n", "\n\n"] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains("without a sample"), "{error}");
    }
}

fn read(text: &str) -> Result<Vec<Sample>, TextError> {
    Samples::new(text.as_bytes()).collect()
}
