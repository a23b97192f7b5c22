//! Drawing.

use bridge_dump::cells::{or_dash, printable};
use bridge_dump::{Capture, decode, units};
use gpu_types::GpuDeviceMetrics;
use map_reader::{Consistency, DevicePhase, Freshness, chain};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::Paragraph;

use super::app::{App, Row, Sort};
use super::bars::{bar, spark};
use super::history::Figures;

const CARD_LINES: usize = 3;
/// What the processes keep of the screen, whatever the devices take: a heading and these.
const LEAST_ROWS: usize = 3;
/// What histories without a natural maximum are drawn against at least.
const LEAST_POWER_MW: u64 = 50_000;
const LEAST_RATE_KBPS: u64 = 1_000_000;
const HOT_C: u64 = 100;

pub(super) fn draw(app: &mut App, frame: &mut Frame<'_>) {
    let area = frame.area();
    let room = usize::from(area.height).saturating_sub(4);
    let devices = device_lines(app, area.width.into(), room);
    let parts = [Constraint::Length(2), Constraint::Length(devices.len() as u16), Constraint::Min(1), Constraint::Length(1)];
    let [head, upper, lower, foot] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(head_lines(app, area.width.into())), head);
    frame.render_widget(Paragraph::new(devices), upper);
    draw_processes(app, frame, lower);
    frame.render_widget(Paragraph::new(foot_line(app)), foot);
}

/// Colours where they are wanted; weight and reversal mean the same without them.
#[derive(Clone, Copy)]
struct Palette(bool);

impl Palette {
    fn colour(self, colour: Color) -> Style {
        if self.0 { Style::new().fg(colour) } else { Style::new() }
    }

    fn warning(self) -> Style {
        self.colour(Color::Red).add_modifier(Modifier::BOLD | Modifier::REVERSED)
    }

    fn heading() -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    /// By how much of something is used, in percent.
    fn load(self, percent: u64) -> Style {
        self.colour(match percent {
            90.. => Color::Red,
            70..90 => Color::Yellow,
            _ => Color::Green,
        })
    }

    fn dim(self) -> Style {
        self.colour(Color::Cyan)
    }
}

fn head_lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let palette = Palette(app.colours);
    let title = format!("gpu-ebpf-bridge {}", app.pin_dir);
    let Some(capture) = &app.capture else { return vec![Line::from(title)] };
    let (fresh, style) = match capture.freshness() {
        Some(Freshness::NeverPublished) => (" NOTHING PUBLISHED YET ".to_owned(), palette.warning()),
        Some(Freshness::Fresh { age }) => (format!("fresh, {} old", units::age(age)), palette.colour(Color::Green)),
        Some(Freshness::Stale { age }) => (format!(" STALE, {} old ", units::age(age)), palette.warning()),
        _ => (" NO DATA ".to_owned(), palette.warning()),
    };
    let mut right = vec![Span::styled(fresh, style)];
    if app.paused {
        right.insert(0, Span::styled(" PAUSED ", palette.warning()));
        right.insert(1, Span::raw(" "));
    }
    if capture.state().is_some_and(|state| state.source().is_invented()) {
        right.insert(0, Span::styled(" INVENTED DATA ", palette.warning()));
        right.insert(1, Span::raw(" "));
    }
    let taken: usize = right.iter().map(Span::width).sum();
    let room = width.saturating_sub(taken + 1);
    let mut first = vec![Span::styled(padded(&title, room), Palette::heading()), Span::raw(" ")];
    first.extend(right);
    vec![Line::from(first), Line::from(status(capture))]
}

/// What the bridge says of itself, or why nothing is to be seen.
fn status(capture: &Capture) -> String {
    if let Some(error) = capture.failures().next() {
        return printable(&chain(error));
    }
    let count = |number: usize, one: &str, several: &str| format!("{number} {}", if number == 1 { one } else { several });
    let mut parts = Vec::new();
    if let Some(state) = capture.state() {
        parts.extend([state.phase().to_string(), format!("source {}", state.source())]);
        parts.extend(state.poll_interval().map(|interval| format!("every {}", units::age(interval))));
        parts.extend(
            Some(state.driver_version()).filter(|version| !version.is_empty()).map(|version| format!("driver {}", printable(&version))),
        );
    }
    let snapshot = &capture.snapshot;
    parts.extend(snapshot.devices.as_ref().ok().map(|devices| count(devices.len(), "GPU", "GPUs")));
    parts.extend(snapshot.processes.as_ref().ok().map(|processes| count(processes.len(), "process", "processes")));
    parts.extend(capture.lost().map(|index| format!("GPU {index} lost")));
    if snapshot.consistency != Consistency::Verified {
        parts.push("rounds may be mixed".to_owned());
    }
    parts.join(" · ")
}

/// Cards where they fit, else a line each; never so many that no process is to be seen.
fn device_lines(app: &App, width: usize, room: usize) -> Vec<Line<'static>> {
    let Some(capture) = &app.capture else { return Vec::new() };
    let Ok(devices) = &capture.snapshot.devices else { return Vec::new() };
    let room = room.saturating_sub(LEAST_ROWS);
    if devices.len() * CARD_LINES <= room {
        return devices.iter().flat_map(|(index, record)| card(app, capture, *index, record, width)).collect();
    }
    let shown = if devices.len() <= room { devices.len() } else { room.saturating_sub(1) };
    let mut lines: Vec<_> = devices[..shown].iter().map(|(index, record)| compact(app, capture, *index, record, width)).collect();
    if shown < devices.len() && room > 0 {
        lines.push(Line::from(format!("… {} more GPUs (a taller terminal shows them, or --device)", devices.len() - shown)));
    }
    lines
}

/// The device's name, and after it what is not as usual.
fn title(capture: &Capture, index: u32) -> (String, Option<String>) {
    let described = capture.device_state(index);
    let name = described.map_or_else(String::new, |device| printable(&device.name()));
    // Not every driver says whose its GPU is.
    let name = match capture.vendor(index) {
        Some(vendor) if !name.contains(vendor) => format!("{vendor} {name}"),
        _ => name,
    };
    let trouble = described.filter(|device| device.phase() != DevicePhase::Answering).map(|device| device.phase().to_string());
    (name, trouble)
}

fn card(app: &App, capture: &Capture, index: u32, record: &GpuDeviceMetrics, width: usize) -> [Line<'static>; CARD_LINES] {
    let palette = Palette(app.colours);
    let now = Figures::of(capture, index, record);
    let (name, trouble) = title(capture, index);
    let bus = capture.device_state(index).map_or_else(String::new, |device| printable(&device.pci_bus_id()));
    let mut first = vec![Span::styled(format!("GPU {index} {name}"), Palette::heading()), Span::raw(format!("  {bus}"))];
    first.extend(trouble.map(|trouble| Span::styled(format!("  {trouble} "), palette.warning())));
    let slowed: Vec<_> = decode::throttle_reasons(record.throttle_reasons).into_iter().filter(|reason| reason != "gpu_idle").collect();
    if !slowed.is_empty() && capture.reports(index, map_reader::Metric::ThrottleReasons) {
        first.push(Span::styled(format!("  slowed: {}", slowed.join(", ")), palette.colour(Color::Yellow)));
    }

    let half = width.saturating_sub(2) / 2;
    let history = |figure: fn(&Figures) -> Option<u64>, top, width| spark(app.histories.of(index, figure), top, width);
    let sm = now.sm_pct;
    let bar_width = half.saturating_sub(12) * 2 / 5;
    let spark_width = half.saturating_sub(12 + bar_width + 2);
    let mut second = vec![Span::raw(format!("  sm {:>6} ", or_dash(sm.map(|pct| format!("{pct} %")))))];
    second.extend(bar_and_history(palette, sm, Some(100), bar_width, history(|figures| figures.sm_pct, 100, spark_width)));
    let memory = now.memory_bytes.map(|used| match now.memory_total_bytes {
        Some(total) => format!("{}/{}", units::bytes(used).replace(" GiB", ""), units::bytes(total)),
        None => units::bytes(used),
    });
    let rest = width.saturating_sub(2 + 10 + bar_width + 1 + spark_width + 1);
    let memory = format!("  mem {:<15} ", or_dash(memory));
    let bar_width = rest.saturating_sub(memory.len() + 1) * 2 / 5;
    let spark_width = rest.saturating_sub(memory.len() + bar_width + 1);
    let total = now.memory_total_bytes;
    second.push(Span::raw(memory));
    let memory_history = history(|figures| figures.memory_bytes, total.unwrap_or(u64::MAX), spark_width);
    second.extend(bar_and_history(palette, now.memory_bytes, total, bar_width, memory_history));

    let quarter = width.saturating_sub(2) / 4;
    let highest = |figure: fn(&Figures) -> Option<u64>, least| app.histories.of(index, figure).flatten().max().unwrap_or(0).max(least);
    let cell = |label: &str, text: Option<String>, figure: fn(&Figures) -> Option<u64>, top: u64| {
        let text = format!("{label} {} ", or_dash(text));
        let room = quarter.saturating_sub(text.chars().count() + 1);
        [Span::raw(text), Span::styled(format!("{} ", history(figure, top, room)), palette.dim())]
    };
    let rate = |kbps: Option<u64>| kbps.map(units::rate);
    let power_top = highest(|figures| figures.power_mw, LEAST_POWER_MW);
    let pcie_top = highest(|figures| figures.pcie_kbps, LEAST_RATE_KBPS);
    let nvlink_top = highest(|figures| figures.nvlink_kbps, LEAST_RATE_KBPS);
    let power = now.power_mw.map(|milliwatts| units::power(u32::try_from(milliwatts).unwrap_or(u32::MAX)));
    let mut third = vec![Span::raw("  ")];
    third.extend(cell("temp", now.temp_c.map(|temp| format!("{temp} °C")), |figures| figures.temp_c, HOT_C));
    third.extend(cell("power", power, |figures| figures.power_mw, power_top));
    third.extend(cell("pcie", rate(now.pcie_kbps), |figures| figures.pcie_kbps, pcie_top));
    third.extend(cell("nvlink", rate(now.nvlink_kbps), |figures| figures.nvlink_kbps, nvlink_top));
    [Line::from(first), Line::from(second), Line::from(third)]
}

fn bar_and_history(palette: Palette, value: Option<u64>, top: Option<u64>, width: usize, history: String) -> [Span<'static>; 3] {
    let share = value.zip(top.filter(|&top| top != 0)).map(|(value, top)| value as f64 / top as f64);
    let style = palette.load(share.map_or(0, |share| (share * 100.0) as u64));
    [Span::styled(bar(share.unwrap_or(0.0), width), style), Span::raw(" "), Span::styled(history, palette.dim())]
}

fn compact(app: &App, capture: &Capture, index: u32, record: &GpuDeviceMetrics, width: usize) -> Line<'static> {
    let palette = Palette(app.colours);
    let now = Figures::of(capture, index, record);
    let (name, trouble) = title(capture, index);
    let sm = or_dash(now.sm_pct.map(|pct| format!("{pct} %")));
    let memory = or_dash(now.memory_bytes.map(units::bytes));
    let temp = or_dash(now.temp_c.map(|temp| format!("{temp} °C")));
    let power = or_dash(now.power_mw.map(|milliwatts| units::power(u32::try_from(milliwatts).unwrap_or(u32::MAX))));
    let history_width = width.saturating_sub(72).max(8);
    let mut spans = vec![Span::styled(format!("{index:>2} {} ", padded(&name, 18)), Palette::heading()), Span::raw(format!("{sm:>5} "))];
    let history = spark(app.histories.of(index, |figures| figures.sm_pct), 100, history_width);
    spans.extend(bar_and_history(palette, now.sm_pct, Some(100), 8, history));
    spans.push(Span::raw(format!(" {memory:>10} ")));
    spans.extend(bar_and_history(palette, now.memory_bytes, now.memory_total_bytes, 6, format!("{temp:>6} {power:>6}")));
    spans.extend(trouble.map(|trouble| Span::styled(format!(" {trouble}"), palette.warning())));
    Line::from(spans)
}

fn draw_processes(app: &mut App, frame: &mut Frame<'_>, area: Rect) {
    let page = usize::from(area.height).saturating_sub(1);
    app.fit(page);
    let with_place = app.rows.iter().any(|row| !row.place.is_empty());
    let room = usize::from(area.width).saturating_sub(8 + 1 + 5 + 1 + 11 + 1 + 5 + 1 + 5 + 1 + 7 + 1);
    // A pod and its container, where there is room for them beside the command.
    let place_width = if with_place { (room / 2).min(30) } else { 0 };
    let command_width = room - place_width;
    let mark = |sort: Sort, heading: &'static str| match (app.sort == sort, app.reversed) {
        (false, _) => heading.to_owned(),
        (true, false) => format!("{heading}▼"),
        (true, true) => format!("{heading}▲"),
    };
    let line = |cells: [&str; 8]| {
        let [pid, device, memory, sm, mem, age, command, place] = cells;
        let place = padded(place, place_width);
        format!("{pid:>8} {device:>5} {memory:>11} {sm:>5} {mem:>5} {age:>7} {place}{command}")
    };
    let place_heading = if with_place { "WHERE" } else { "" };
    let heading = line([
        &mark(Sort::Pid, "PID"),
        &mark(Sort::Device, "GPU"),
        &mark(Sort::Memory, "MEMORY"),
        &mark(Sort::Utilization, "SM %"),
        "MEM %",
        "AGE",
        &mark(Sort::Command, "COMMAND"),
        place_heading,
    ]);
    let mut lines = vec![Line::styled(padded(&heading, area.width.into()), Style::new().add_modifier(Modifier::REVERSED))];
    let process = |row: &Row| {
        let number = |value: Option<u32>| or_dash(value.map(|value| value.to_string()));
        let age = or_dash(row.sample_age.map(units::age));
        let command = or_dash(Some(shortened(&row.command, command_width)));
        let place = shortened(&row.place, place_width.saturating_sub(1));
        let (pid, memory) = (row.pid.to_string(), units::bytes(row.memory_bytes));
        line([&pid, &shortened(&row.devices, 5), &memory, &number(row.sm_pct), &number(row.mem_pct), &age, &command, &place])
    };
    lines.extend(app.rows.iter().skip(app.first).take(page).map(|row| Line::from(process(row))));
    frame.render_widget(Paragraph::new(lines), area);
}

fn foot_line(app: &App) -> Line<'static> {
    if app.typing {
        return Line::from(format!("filter: {}▏  (Enter keeps it, Esc drops it)", printable(&app.filter)));
    }
    let mut keys = "q quit · sort m memory u util p pid c command g gpu r reverse · / filter".to_owned();
    if !app.filter.is_empty() {
        keys = format!("filter \"{}\" (Esc drops it) · {keys}", printable(&app.filter));
    } else if !app.processes.are_visible() {
        keys = format!("commands are not to be seen from this PID namespace · {keys}");
    }
    Line::from(keys)
}

/// Cut or filled to `width` characters.
fn padded(text: &str, width: usize) -> String {
    format!("{:<width$}", shortened(text, width))
}

/// Cut to `width` characters, with a sign that it is.
fn shortened(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    let mut cut: String = text.chars().take(width.saturating_sub(1)).collect();
    if width > 0 {
        cut.push('…');
    }
    cut
}
