// The providers that the broker has a route to: their address and key are in the environment. Nothing else changes.
export default function (pi) {
  const env = process.env;
  const providers = {
    anthropic: [env.ANTHROPIC_BASE_URL, "", "$ANTHROPIC_AUTH_TOKEN"],
    openai: [env.OPENAI_BASE_URL, "", "$OPENAI_API_KEY"],
    google: [env.GOOGLE_GEMINI_BASE_URL, "/v1beta", "$GEMINI_API_KEY"],
    mistral: [env.MISTRAL_BASE_URL?.replace(/\/v1$/, ""), "", "$MISTRAL_API_KEY"],
    deepseek: [env.DEEPSEEK_BASE_URL, "", "$DEEPSEEK_API_KEY"],
    groq: [env.GROQ_BASE_URL, "/openai/v1", "$GROQ_API_KEY"],
    xai: [env.XAI_BASE_URL, "", "$XAI_API_KEY"],
  };
  for (const [name, [base, path, apiKey]] of Object.entries(providers)) {
    if (base?.startsWith("http://127.0.0.1:")) pi.registerProvider(name, { baseUrl: base + path, apiKey });
  }
}
