// Save a picture as a file: as SVG, or as PNG at twice its size.

const SCALE = 2;

export function saveSvg(file) {
  download(new Blob([file], { type: "image/svg+xml" }), "permalign.svg");
}

// The browser draws the SVG as an image, which may load nothing and run nothing.
export async function savePng(file) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(file)}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = image.naturalWidth * SCALE;
  canvas.height = image.naturalHeight * SCALE;
  const context = canvas.getContext("2d");
  context.fillStyle = "#ffffff";
  context.fillRect(0, 0, canvas.width, canvas.height);
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  if (!blob) throw new Error("The picture is too large to save as PNG; save it as SVG.");
  download(blob, "permalign.png");
}

function download(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
