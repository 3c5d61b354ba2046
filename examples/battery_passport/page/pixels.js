// Pictures as the server expects them: one byte of brightness for each pixel, row by row.

export async function pixelsOf(image) {
  await image.decode();
  return read(image, image.naturalWidth, image.naturalHeight);
}

export async function pixelsOfCamera(video, use) {
  // Show the camera, and hand one picture after the other to `use` until it returns true.
  const stream = await navigator.mediaDevices.getUserMedia({ video: { facingMode: "environment" } });
  video.hidden = false;
  video.srcObject = stream;
  try {
    await video.play();
    while (video.srcObject === stream && !await use(read(video, video.videoWidth, video.videoHeight))) {
      await new Promise((done) => setTimeout(done, 200));
    }
  } finally {
    stream.getTracks().forEach((track) => track.stop());
    video.hidden = true;
  }
}

function read(source, width, height) {
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  context.drawImage(source, 0, 0);
  const { data } = context.getImageData(0, 0, width, height);
  const pixels = new Uint8Array(width * height);
  for (let at = 0; at < pixels.length; at += 1) {
    pixels[at] = (data[4 * at] * 77 + data[4 * at + 1] * 150 + data[4 * at + 2] * 29) >> 8;
  }
  return { width, height, pixels };
}
