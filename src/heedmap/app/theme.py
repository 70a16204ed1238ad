"""How the app looks: the colours and the fonts of the explorer's page; none is fetched."""

from importlib import resources

import gradio as gr

_COLOURS = {
    "body_background_fill": ("#fbfaf8", "#141416"),
    "body_text_color": ("#1c1c1f", "#ececee"),
    "body_text_color_subdued": ("#5c5c63", "#a6a6ad"),
    "block_background_fill": ("#ffffff", "#1c1c1f"),
    "block_border_color": ("#dedcd6", "#35353a"),
    "border_color_primary": ("#dedcd6", "#35353a"),
    "input_background_fill": ("#ffffff", "#141416"),
    "input_border_color": ("#c9c7c1", "#4a4a50"),
    "input_placeholder_color": ("#6b6b72", "#a6a6ad"),
    "block_info_text_color": ("#5c5c63", "#a6a6ad"),
    "block_label_text_color": ("#1c1c1f", "#ececee"),
    "block_title_text_color": ("#1c1c1f", "#ececee"),
    "button_primary_background_fill": ("#1f5fbf", "#8ab4f8"),
    "button_primary_background_fill_hover": ("#184d9c", "#a8c7fa"),
    "button_primary_text_color": ("#ffffff", "#141416"),
    "button_secondary_background_fill": ("#f1efea", "#2b2b30"),
    "button_secondary_text_color": ("#1c1c1f", "#ececee"),
    "slider_color": ("#1f5fbf", "#8ab4f8"),
}
"""What Gradio calls its colours: by day, and in the dark."""


def theme() -> gr.themes.Base:
    """Gradio's theme in the colours of the explorer, with the fonts of the visitor's machine."""
    made = gr.themes.Base(
        primary_hue=gr.themes.colors.blue,
        neutral_hue=gr.themes.colors.zinc,
        radius_size=gr.themes.sizes.radius_sm,
        font=["-apple-system", "Segoe UI", "Roboto", "Noto Sans", "system-ui", "sans-serif"],
        font_mono=["ui-monospace", "SF Mono", "Menlo", "Consolas", "monospace"],
    )
    light = {name: colour for name, (colour, _) in _COLOURS.items()}
    dark = {f"{name}_dark": colour for name, (_, colour) in _COLOURS.items()}
    return made.set(
        input_border_width="1px",
        input_padding="7px 10px",
        color_accent="#1f5fbf",
        loader_color="#1f5fbf",
        block_padding="12px 14px",
        **light | dark,
    )


def style() -> str:
    """The rules that a theme of Gradio's has no settings for."""
    return beside_this("app.css")


def beside_this(name: str) -> str:
    """A file beside this one, such as a script of the page."""
    return resources.files(__package__ or __name__).joinpath(name).read_text(encoding="utf-8")
